"""Chat templates in Jinja's sandbox, with every rendering's work bounded.

A template is code from whoever made the file. Jinja's sandbox keeps it from Python's objects; what
it does not keep it from is running for ever, or making a terabyte of text in forty steps, and in a
browser no timer could stop either. So everything that takes time is measured before it is done:
iterations, calls, filters and tests by the step, and whatever reads or makes a value by the
value's size. What is left needs no measure, because a template's length bounds it.

The names are those that Hugging Face's transformers gives its chat templates, without those that
are for web pages.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from jinja2 import TemplateRuntimeError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

STEP = 50  # work of an iteration, a call, a filter or a test; a character is 1
ITEM = 8  # of a value that is looked at, among others in a list
WORK = 20_000_000  # of one rendering: about a second at most
WORK_PER_CHARACTER = 20  # more for each character of a conversation

_FREE = {"length", "count", "first", "last", "default", "d"}
_SHALLOW = {"list", "map", "select", "reject", "selectattr", "rejectattr", "reverse", "items"}
_DEEP = {
    "abs", "capitalize", "dictsort", "e", "escape", "float", "int", "join", "lower", "max", "min",
    "replace", "safe", "sort", "string", "title", "trim", "unique", "upper",
}  # fmt: skip
_ATTRIBUTES = {
    str: {
        "capitalize", "count", "endswith", "find", "isalnum", "isalpha", "isdigit", "islower",
        "isspace", "isupper", "join", "lower", "lstrip", "partition", "removeprefix",
        "removesuffix", "replace", "rfind", "rpartition", "rsplit", "rstrip", "split",
        "splitlines", "startswith", "strip", "title", "upper",
    },
    dict: {"get", "items", "keys", "values"},
    list: set(), tuple: set(), int: set(), float: set(), bytes: set(),
}  # fmt: skip


class LimitError(TemplateRuntimeError):
    """A rendering took more work than a conversation needs."""


class RaisedError(TemplateRuntimeError):
    """The template itself refused the conversation, by `raise_exception`."""


class Meter:
    """The work that a rendering may still do."""

    def __init__(self) -> None:
        self.left = 0

    def take(self, work: int) -> None:
        """Pay for some work, or raise `LimitError`."""
        self.left -= work
        if self.left < 0:
            raise LimitError("runs for too long, or makes too much text")

    def read(self, *values: object) -> None:
        """Pay for looking at all of these values, and at all that they hold."""
        stack = list(values)
        while stack:
            value = stack.pop()
            self.take(ITEM + (len(value) if isinstance(value, str) else 0))
            if isinstance(value, Mapping):
                stack += [*value.keys(), *value.values()]
            elif isinstance(value, list | tuple | set | frozenset):
                stack += value

    def size(self, value: object) -> None:
        """Pay for each item that a value holds, but not for what the items hold."""
        self.take(1 + (len(value) if hasattr(value, "__len__") else 0))

    def counted(self, values: Any) -> Iterator[Any]:
        """The same items, a step each."""
        for value in values:
            self.take(STEP)
            yield value


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with a meter; one rendering at a time."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        # Constants are not folded: that would run filters without the meter.
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False,
            extensions=[Generation, LoopControlExtension],
        )  # fmt: skip
        self.meter = meter = Meter()
        self.filters = _metered_filters(meter, self.filters)
        self.tests = {name: _metered(meter, test, meter.read) for name, test in self.tests.items()}
        self.tests |= {"odd": lambda n: _whole(n) % 2 == 1, "even": lambda n: _whole(n) % 2 == 0}
        self.tests["divisibleby"] = lambda n, by: _whole(n) % _whole(by) == 0
        for name in ("lipsum", "cycler", "joiner"):
            del self.globals[name]
        self.globals |= {"raise_exception": _raise, "strftime_now": _now}

    def _generate(self, source: nodes.Template, *arguments: Any, **options: Any) -> str:
        return super()._generate(_Meters().visit(source), *arguments, **options)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Methods that only look, and whose work is known; no attribute of a plain value."""
        kind = next((kind for kind in _ATTRIBUTES if isinstance(obj, kind)), None)
        allowed = kind is None or attr in _ATTRIBUTES[kind]
        return allowed and super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
        """An error at once, not when the value is used."""
        raise SecurityError(f"reaches for {attribute!r} of a {type(obj).__name__}")

    def wrap_str_format(self, value: Any) -> None:
        """Nothing: `format` is not among the attributes of a string."""

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An item; a key is read to be found."""
        self.meter.read(argument)
        return super().getitem(obj, argument)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """A call: a step, and what a method or a function reads."""
        meter = __self.meter
        meter.take(STEP + len(args) + len(kwargs))
        if not isinstance(__obj, Macro):
            meter.read(args, kwargs)
        text = getattr(__obj, "__self__", None)
        if isinstance(text, str):
            meter.read(text)
            if __obj.__name__ == "replace" and len(args) > 1:
                _pay_replace(meter, text, str(args[0]), str(args[1]))
            elif __obj.__name__ == "join" and args:
                args = (list(args[0]),)
                meter.read(args)
                meter.take(len(text) * len(args[0]))
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator: repetition is paid for before, and numbers stay of 64 bits."""
        values = (left, right)
        for value in values:
            self.meter.size(value)
            if isinstance(value, int) and abs(value) >> 64:
                raise SecurityError("a number has more than 64 bits")
        if operator == "**" or (operator == "%" and isinstance(left, str)):
            raise SecurityError(f"operator '{operator}' is not offered here")
        if operator == "*":
            for value, count in (values, values[::-1]):
                if hasattr(value, "__len__") and isinstance(count, int):
                    self.meter.take(len(value) * max(count, 0))
        return super().call_binop(context, operator, left, right)


class Generation(Extension):
    """``{% generation %} ... {% endgeneration %}``, which marks what a model wrote."""

    tags = {"generation"}  # noqa: RUF012 - declared so by Jinja

    def parse(self, parser: Parser) -> nodes.Node:
        """The body, in a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Meters(NodeTransformer):
    """Puts the meter's filters, whose names no template can write, around what costs work."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        if node.recursive:
            raise SecurityError("recursive loops are not offered here")
        self.generic_visit(node)
        node.iter = _filter("(count)", node.iter)
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        self.generic_visit(node)
        node.nodes = [_filter("(read)", value) for value in node.nodes]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter("(concat)", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _filter("(read)", node.expr)
        for operand in node.ops:
            name = "(size)" if operand.op in ("in", "notin") else "(read)"
            operand.expr = _filter(name, operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _filter("(size)", node.node)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        self.generic_visit(node)
        node.key = _filter("(read)", node.key)
        return node


def _filter(name: str, value: Any) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)


def _metered_filters(meter: Meter, known: Mapping[str, Any]) -> dict[str, Any]:
    """The filters that templates have, each of which pays; and the meter's own."""

    def read(value: Any) -> Any:
        meter.read(value)
        return value

    def size(value: Any) -> Any:
        meter.size(value)
        return value

    def concat(values: list[Any]) -> str:
        meter.read(values)
        return "".join(map(str, values))

    def join(_: Any, value: Any, d: str = "", *rest: Any, **named: Any) -> Any:
        items = list(value)
        meter.take(len(items) * len(str(d)))
        meter.read(items)
        return known["join"](_, items, d, *rest, **named)

    def replace(_: Any, s: Any, old: Any, new: Any, count: int | None = None) -> Any:
        _pay_replace(meter, str(s), str(old), str(new))
        return known["replace"](_, s, old, new, count)

    def indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> Any:
        columns = len(width) if isinstance(width, str) else width
        meter.take((1 + str(s).count("\n")) * max(columns, 1))
        return known["indent"](str(s), width, first, blank)

    def tojson(
        value: Any,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        if indent is not None and not 0 <= indent <= 16:
            raise SecurityError(f"tojson: indent {indent}: expected 0 to 16")
        return json.dumps(
            value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def shallow(value: Any, *rest: Any) -> None:
        meter.size(value)
        meter.read(*rest)

    pays: dict[str, Callable[..., None]] = dict.fromkeys(_FREE, lambda *_: None)
    pays |= dict.fromkeys(_SHALLOW, shallow) | dict.fromkeys(_DEEP, meter.read)
    made = {name: _metered(meter, known[name], pay) for name, pay in pays.items()}
    own: dict[str, Any] = {"join": join, "replace": replace}
    for name, function in own.items():
        made[name] = _metered(meter, functools.wraps(known[name])(function), meter.read)
    made |= {f.__name__: _metered(meter, f, meter.read) for f in (indent, tojson)}
    return made | {"(read)": read, "(size)": size, "(concat)": concat, "(count)": meter.counted}


def _metered(meter: Meter, function: Any, pay: Callable[..., None]) -> Any:
    """A filter or a test that pays first; what it yields is counted."""
    passed = getattr(function, "jinja_pass_arg", None) is not None  # Jinja's context comes first

    @functools.wraps(function)
    def paying(*args: Any, **kwargs: Any) -> Any:
        meter.take(STEP)
        pay(*args[passed:], *kwargs.values())
        result = function(*args, **kwargs)
        if isinstance(result, Iterator):
            return meter.counted(result)
        meter.size(result)
        return result

    return paying


def _pay_replace(meter: Meter, text: str, old: str, new: str) -> None:
    found = text.count(old)
    meter.take(found * len(new))


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise SecurityError(f"expected a whole number, found {type(value).__name__}")
    return value


def _raise(message: Any) -> None:
    raise RaisedError(str(message))


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
