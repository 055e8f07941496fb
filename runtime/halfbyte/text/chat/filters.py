"""The filters and tests of templates, each of which pays before it works."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from operator import length_hint
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.filters import ignore_case, make_attrgetter

from halfbyte.text.chat.meter import ITEM, STEP, Meter

_FREE = {"length", "count", "first", "last", "default", "d"}
_SHALLOW = {"list", "select", "reject", "reverse", "items"}
_LOOK_UP = {"map", "selectattr", "rejectattr"}  # an attribute or a key of each item
_DEEP = {
    "abs", "capitalize", "dictsort", "e", "escape", "float", "indent", "int", "join", "lower",
    "max", "min", "replace", "safe", "sort", "string", "title", "tojson", "trim", "unique", "upper",
}  # fmt: skip
_ORDERED = ("max", "min", "sort")
_MAX_DIGITS = 5000  # characters of a number
_CONVERTED = 6  # further units for a character of a text whose letters change or are escaped


def metered_filters(meter: Meter, known: Mapping[str, Any]) -> dict[str, Any]:
    """Jinja's filters, or ours in their place, without those for web pages."""

    def shallow(value: Any, *rest: Any) -> None:
        meter.plain(value)
        meter.size(value)
        if isinstance(value, str):
            meter.take(ITEM * len(value))
        meter.read(*rest)

    def look_up(value: Any, *rest: Any) -> None:
        shallow(value, *rest)
        meter.take(STEP * length_hint(value))

    pays: dict[str, Callable[..., object]] = dict.fromkeys(_FREE, lambda *_: None)
    pays |= dict.fromkeys(_SHALLOW, shallow)
    pays |= dict.fromkeys(_LOOK_UP, look_up)
    pays |= dict.fromkeys(_DEEP, meter.read)
    chosen = {name: known[name] for name in pays}
    chosen |= _list_filters(meter, known) | _text_filters(meter, known)
    return {name: metered(meter, chosen[name], pay) for name, pay in pays.items()}


def _list_filters(meter: Meter, known: Mapping[str, Any]) -> dict[str, Any]:
    """Filters of lists that cost more than reading their arguments."""

    def join(_: Any, value: Any, d: str = "", attribute: str | int | None = None) -> Any:
        items = list(meter.counted(value))
        meter.take(len(items) * len(str(d)))
        meter.read(items)
        return known["join"](_, items, d, attribute)

    def unique(env: Any, value: Any, case: bool = False, attribute: Any = None) -> Any:
        key = make_attrgetter(env, attribute, postprocess=None if case else ignore_case)
        seen = set()
        for item in meter.counted(value):
            if meter.key(key(item)) not in seen:
                seen.add(key(item))
                yield item

    def dictsort(value: Mapping[Any, Any], *rest: Any, **named: Any) -> Any:
        meter.order(value)
        return known["dictsort"](value, *rest, **named)

    def ordered(name: str) -> Any:
        def order(env: Any, value: Any, *rest: Any, **named: Any) -> Any:
            items = list(meter.counted(value))
            meter.order(items)
            return known[name](env, items, *rest, **named)

        return functools.wraps(known[name])(order)

    filters = {f.__name__: functools.wraps(known[f.__name__])(f) for f in (dictsort, join, unique)}
    return filters | {name: ordered(name) for name in _ORDERED}


def _text_filters(meter: Meter, known: Mapping[str, Any]) -> dict[str, Any]:
    """Filters of texts and numbers that cost more than reading their arguments."""

    def replace(_: Any, s: Any, old: Any, new: Any, count: int | None = None) -> Any:
        meter.paid_replace(str(s), str(old), str(new))
        return known["replace"](_, s, old, new, count)

    def trim(value: Any, chars: str | None = None) -> Any:
        meter.take(len(str(value)) * (1 + len(chars or "") // 8))
        return known["trim"](value, chars)

    def indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> Any:
        columns = len(width) if isinstance(width, str) else width
        text = str(s)
        meter.take(len(text) * ITEM + (1 + len(text.splitlines())) * max(columns, 1))
        return known["indent"](text, width, first, blank)

    def number(name: str) -> Any:
        def convert(value: Any, *rest: Any, **named: Any) -> Any:
            if isinstance(value, str) and len(value) > _MAX_DIGITS:
                raise SecurityError(f"{name}: a number of {len(value)} characters")
            return known[name](value, *rest, **named)

        return functools.wraps(known[name])(convert)

    def convert_text(name: str) -> Any:
        def convert(value: Any) -> Any:
            meter.take(_CONVERTED * len(str(value)))
            return known[name](value)

        return functools.wraps(known[name])(convert)

    def tojson(
        value: Any,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        if indent is not None and not 0 <= indent <= 16:
            raise SecurityError(f"tojson: indent {indent}: expected 0 to 16")
        return _json(meter, value, indent, separators, sort_keys)

    filters = {f.__name__: functools.wraps(known[f.__name__])(f) for f in (replace, trim)}
    filters |= {name: number(name) for name in ("int", "float")}
    filters |= {name: convert_text(name) for name in ("title", "e", "escape", "upper", "lower")}
    return filters | {"indent": indent, "tojson": tojson}


def _json(meter: Meter, value: Any, indent: int | None, separators: Any, sort_keys: bool) -> str:
    cost = meter.read(value) * (4 if sort_keys else 2)
    if separators is not None:
        cost += meter.read(separators) * cost // ITEM
    meter.take(cost)
    text = json.dumps(value, ensure_ascii=False, separators=separators, sort_keys=sort_keys)
    if indent is None:
        return text
    lines = sum(map(text.count, ",[{]}"))  # at most: strings have these characters too
    meter.take(2 * len(text) + lines * meter.depth * indent)
    return json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
    )


def metered_tests(meter: Meter, known: Mapping[str, Any]) -> dict[str, Any]:
    """Jinja's tests."""

    def read(*values: Any) -> None:
        meter.read(*values)

    own = {
        "odd": lambda n: _whole(n) % 2 == 1, "even": lambda n: _whole(n) % 2 == 0,
        "divisibleby": lambda n, by: _whole(n) % _whole(by) == 0, "in": meter.contains,
    }  # fmt: skip
    return {name: metered(meter, test, read) for name, test in (dict(known) | own).items()}


def metered(meter: Meter, function: Any, pay: Callable[..., object]) -> Any:
    """A filter or a test that pays first, and whose items are all computed at once.

    Iterators over iterators would nest as many calls in C. The result is an iterator over a list,
    which templates cannot tell from Jinja's own: it has no length, and is true.
    """
    skipped = getattr(function, "jinja_pass_arg", None) is not None  # Jinja's context comes first

    @functools.wraps(function)
    def paying(*args: Any, **kwargs: Any) -> Any:
        meter.take(STEP)
        pay(*args[skipped:], *kwargs.values())
        with meter.call():
            result = function(*args, **kwargs)
            if isinstance(result, Iterator):
                return iter(_drawn(meter, result))
        meter.size(result)
        return result

    return paying


def _drawn(meter: Meter, items: Iterator[Any]) -> list[Any]:
    drawn = []
    for item in items:
        meter.take(STEP)
        drawn.append(item)
    return drawn


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise SecurityError(f"expected a whole number, found {type(value).__name__}")
    return value
