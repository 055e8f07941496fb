"""Reads TOML tables into dataclasses, whose declarations say what the tables may hold.

A field is annotated with its reader, as in ``ram_mb: Annotated[Quantity, number(64, 4e6)]``; a
field that is a dataclass is a nested table. A method `check(where)` checks what must hold between
the fields. Files may come from anywhere: all lengths and magnitudes have bounds.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from halfbyte.device.quantity import Quantity, Steps
from halfbyte.errors import ProfileError

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MAX_BYTES = 1_000_000
MAX_STEPS = 64
MAX_TEXT = 2000
_SHOWN = 60  # characters of a value in a message

T = TypeVar("T")


@dataclass(frozen=True)
class Where:
    """A place in a file: a dotted key such as ``clusters[0].frequencies_mhz``."""

    file: str
    key: str = ""

    def at(self, name: str) -> Where:
        """The key of that name in this table."""
        name = name if NAME.fullmatch(name) else _shown(name)
        return Where(self.file, f"{self.key}.{name}" if self.key else name)

    def item(self, index: int) -> Where:
        """The place of an element of this array."""
        return Where(self.file, f"{self.key}[{index}]")

    def error(self, expected: str, actual: object) -> ProfileError:
        """The error to raise; `actual` is None for a key that is missing."""
        place = f"{self.file}: {self.key}" if self.key else self.file
        return ProfileError(f"{place}: expected {expected}, found {_shown(actual)}")


class Text(str):
    """A text that messages show as it is; other strings are quoted as in the file."""

    __slots__ = ()


Reader = Callable[[object, Where], Any]


# ---- readers of fields ---------------------------------------------------------------------------


def number(minimum: float, maximum: float, *, whole: bool = False) -> Reader:
    """``{ value = 20, range = [15, 25], source = "..." }`` from least to most."""

    def read(data: object, where: Where) -> Quantity:
        entry = _entry(data, where, ("value", "range", "source", "assumed"))
        value = _bounded(entry.get("value"), where.at("value"), minimum, maximum, whole=whole)
        source, assumed = _origin(entry, where)
        low = high = value
        if "range" in entry:
            low, high = _range(entry["range"], where.at("range"), minimum, maximum)
            if not low <= value <= high:
                span = Text(f"{low:g} to {high:g}")
                raise where.at("range").error(f"a range around {value:g}", span)
        elif assumed:
            raise where.at("range").error("the range of what is assumed", None)
        return Quantity(value, low, high, source, assumed)

    return read


def numbers(minimum: float, maximum: float) -> Reader:
    """``{ value = [300, 600], source = "..." }``, all from least to most, in ascending order."""

    def read(data: object, where: Where) -> Steps:
        entry = _entry(data, where, ("value", "source", "assumed"))
        place = where.at("value")
        listed = entry.get("value")
        if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_STEPS:
            raise place.error(f"a list of 1 to {MAX_STEPS} numbers", _sized(listed))
        values = tuple(_bounded(v, place.item(i), minimum, maximum) for i, v in enumerate(listed))
        for index in range(1, len(values)):
            if values[index] < values[index - 1]:
                expected = f"{values[index - 1]:g} or more, since it must not fall"
                raise place.item(index).error(expected, listed[index])
        return Steps(values, *_origin(entry, where))

    return read


def integer(minimum: int, maximum: int) -> Reader:
    """A whole number."""

    def read(data: object, where: Where) -> int:
        return int(_bounded(data, where, minimum, maximum, whole=True))

    return read


def bare(minimum: float, maximum: float) -> Reader:
    """A number without an origin."""

    def read(data: object, where: Where) -> float:
        return _bounded(data, where, minimum, maximum)

    return read


def text(data: object, where: Where) -> str:
    """A line of text that a terminal can show."""
    if not isinstance(data, str) or not data.strip() or not data.isprintable():
        raise where.error("a line of printable text", data)
    if len(data) > MAX_TEXT:
        raise where.error(f"at most {MAX_TEXT} characters", Text(f"{len(data)}"))
    return data


def name(data: object, where: Where) -> str:
    """A short name, which may also be a key or a file's name."""
    if not isinstance(data, str) or not NAME.fullmatch(data):
        raise where.error("a name of up to 64 of a-z, 0-9, - and _", data)
    return data


def choice(*choices: str) -> Reader:
    """One of the given strings."""

    def read(data: object, where: Where) -> str:
        if data not in choices:
            raise where.error(f"one of {', '.join(choices)}", data)
        return str(data)

    return read


def pair(data: object, where: Where) -> tuple[str, str]:
    """Two names."""
    if not isinstance(data, list) or len(data) != 2:
        raise where.error("a list of two names", _sized(data))
    return name(data[0], where.item(0)), name(data[1], where.item(1))


def tables(of: type[T], minimum: int, maximum: int) -> Reader:
    """An array of tables."""

    def read(data: object, where: Where) -> tuple[T, ...]:
        if not isinstance(data, list) or not minimum <= len(data) <= maximum:
            raise where.error(f"an array of {minimum} to {maximum} tables", _sized(data))
        return tuple(read_table(of, table, where.item(i)) for i, table in enumerate(data))

    return read


def named(of: type[T], minimum: int, maximum: int) -> Reader:
    """A table of tables, by name."""

    def read(data: object, where: Where) -> dict[str, T]:
        if not isinstance(data, dict) or not minimum <= len(data) <= maximum:
            raise where.error(f"{minimum} to {maximum} tables by name", _sized(data))
        return {name(key, where): read_table(of, data[key], where.at(key)) for key in data}

    return read


# ---- tables --------------------------------------------------------------------------------------


def read_table(of: type[T], data: object, where: Where) -> T:
    """The dataclass `of` from a table with exactly its fields.

    Raises
    ------
    ProfileError
        The table is not valid; the message names the file and the key.
    """
    readers = _readers(of)
    table = _entry(data, where, tuple(readers))
    values = {}
    for key, (reader, required) in readers.items():
        if key in table or required:
            values[key] = reader(table.get(key), where.at(key))
    instance = of(**values)
    check = getattr(instance, "check", None)
    if check is not None:
        check(where)
    return instance


def read_file(of: type[T], path: Path) -> T:
    """The dataclass `of` from a TOML file.

    Raises
    ------
    ProfileError
        The file is not valid.
    OSError
        The file cannot be read.
    """
    where = Where(str(path))
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise where.error(f"a file of at most {MAX_BYTES} bytes", Text("more"))
    try:
        table = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise where.error("TOML", Text(" ".join(str(error).split())[:200])) from None
    return read_table(of, table, where)


def _readers(of: type[Any]) -> Mapping[str, tuple[Reader, bool]]:
    """By field its reader, and whether the field is required."""
    hints = get_type_hints(of, include_extras=True)
    readers = {}
    for field in dataclasses.fields(of):
        hint = hints[field.name]
        annotated = getattr(hint, "__metadata__", None)
        # a dataclass, or one in a union such as `Battery | None`
        inner = next((h for h in (hint, *get_args(hint)) if dataclasses.is_dataclass(h)), None)
        reader = annotated[0] if annotated else _table_of(inner)
        required = field.default is field.default_factory is dataclasses.MISSING
        readers[field.name] = (reader, required)
    return readers


def _table_of(of: Any) -> Reader:
    return lambda data, where: read_table(of, data, where)


def _entry(data: object, where: Where, keys: tuple[str, ...]) -> dict[str, Any]:
    """A table with no other keys."""
    if not isinstance(data, dict):
        raise where.error(f"a table of {', '.join(keys)}", data)
    for key in data:
        if key not in keys:
            raise where.at(key).error(f"one of {', '.join(keys)}", key)
    return data


def _origin(entry: Mapping[str, Any], where: Where) -> tuple[str, str]:
    if ("source" in entry) == ("assumed" in entry):
        actual = Text("both") if "source" in entry else None
        raise where.error("either a source or why it is assumed", actual)
    if "source" in entry:
        return text(entry["source"], where.at("source")), ""
    return "", text(entry["assumed"], where.at("assumed"))


def _range(data: object, where: Where, minimum: float, maximum: float) -> tuple[float, float]:
    if not isinstance(data, list) or len(data) != 2:
        raise where.error("a list of two numbers, lowest and highest", _sized(data))
    low, high = (_bounded(v, where.item(i), minimum, maximum) for i, v in enumerate(data))
    return low, high


def _bounded(
    data: Any, where: Where, minimum: float, maximum: float, *, whole: bool = False
) -> float:
    """A number in bounds; NaN is in none."""
    is_number = isinstance(data, (int, float)) and not isinstance(data, bool)
    if is_number and minimum <= data <= maximum and (not whole or data == int(data)):
        return float(data)
    kind = "whole number" if whole else "number"
    raise where.error(f"a {kind} from {minimum:g} to {maximum:g}", data)


def _sized(data: object) -> object:
    return Text(f"{len(data)}") if isinstance(data, (list, dict)) else data


def _shown(value: object) -> str:
    """A short text for a value of any type and size."""
    match value:
        case None:
            return "nothing"
        case Text():
            return str(value)
        case dict():
            return "a table"
        case list():
            return "a list"
        case int() if value.bit_length() > 64:  # Python refuses to print very long integers
            return f"a number of {value.bit_length()} bits"
        case str():
            shown = ascii(value[:_SHOWN])
        case _:
            shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
