"""Tables of a TOML file become dataclasses: what a class declares is what its table may hold.

A field is annotated with what reads it, `ram_mb: Annotated[Quantity, number(64, 4e6)]`; one that
is a dataclass itself is a table in the table. A class with a method `check(where)` says there what
must hold between its fields. Files may come from anywhere: all lengths and magnitudes have bounds.
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
_SHOWN = 60  # characters of what was found

T = TypeVar("T")


@dataclass(frozen=True)
class Where:
    """A place in a file: a key with dots, as in ``clusters[0].frequencies_mhz``."""

    file: str
    key: str = ""

    def at(self, name: str) -> Where:
        """The key of that name in this table."""
        name = name if NAME.fullmatch(name) else _shown(name)
        return Where(self.file, f"{self.key}.{name}" if self.key else name)

    def item(self, index: int) -> Where:
        """An element of this array."""
        return Where(self.file, f"{self.key}[{index}]")

    def error(self, expected: str, found: object) -> ProfileError:
        """What to raise; None, which TOML cannot say, was not found at all."""
        place = f"{self.file}: {self.key}" if self.key else self.file
        return ProfileError(f"{place}: expected {expected}, found {_shown(found)}")


class Words(str):
    """What was found, in words rather than as it stands in the file."""

    __slots__ = ()


Reader = Callable[[object, Where], Any]


# ---- what reads a field --------------------------------------------------------------------------


def number(least: float, most: float, *, whole: bool = False) -> Reader:
    """``{ value = 20, range = [15, 25], source = "..." }`` from least to most."""

    def read(found: object, where: Where) -> Quantity:
        entry = _entry(found, where, ("value", "range", "source", "assumed"))
        value = _bounded(entry.get("value"), where.at("value"), least, most, whole=whole)
        source, assumed = _origin(entry, where)
        low = high = value
        if "range" in entry:
            low, high = _range(entry["range"], where.at("range"), least, most)
            if not low <= value <= high:
                span = Words(f"{low:g} to {high:g}")
                raise where.at("range").error(f"a range around {value:g}", span)
        elif assumed:
            raise where.at("range").error("the range of what is assumed", None)
        return Quantity(value, low, high, source, assumed)

    return read


def numbers(least: float, most: float) -> Reader:
    """``{ value = [300, 600], source = "..." }``, all from least to most, none below the last."""

    def read(found: object, where: Where) -> Steps:
        entry = _entry(found, where, ("value", "source", "assumed"))
        place = where.at("value")
        listed = entry.get("value")
        if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_STEPS:
            raise place.error(f"a list of 1 to {MAX_STEPS} numbers", _sized(listed))
        values = tuple(_bounded(v, place.item(i), least, most) for i, v in enumerate(listed))
        for index in range(1, len(values)):
            if values[index] < values[index - 1]:
                expected = f"{values[index - 1]:g} or more, since it must not fall"
                raise place.item(index).error(expected, listed[index])
        return Steps(values, *_origin(entry, where))

    return read


def integer(least: int, most: int) -> Reader:
    """A whole number."""

    def read(found: object, where: Where) -> int:
        return int(_bounded(found, where, least, most, whole=True))

    return read


def text(found: object, where: Where) -> str:
    """A line of text that a terminal can show."""
    if not isinstance(found, str) or not found.strip() or not found.isprintable():
        raise where.error("a line of printable text", found)
    if len(found) > MAX_TEXT:
        raise where.error(f"at most {MAX_TEXT} characters", Words(f"{len(found)}"))
    return found


def name(found: object, where: Where) -> str:
    """A short name, which may be a key or a file's name too."""
    if not isinstance(found, str) or not NAME.fullmatch(found):
        raise where.error("a name of up to 64 of a-z, 0-9, - and _", found)
    return found


def choice(*choices: str) -> Reader:
    """One of a few words."""

    def read(found: object, where: Where) -> str:
        if found not in choices:
            raise where.error(f"one of {', '.join(choices)}", found)
        return str(found)

    return read


def pair(found: object, where: Where) -> tuple[str, str]:
    """Two names."""
    if not isinstance(found, list) or len(found) != 2:
        raise where.error("a list of two names", _sized(found))
    return name(found[0], where.item(0)), name(found[1], where.item(1))


def tables(of: type[T], least: int, most: int) -> Reader:
    """An array of tables."""

    def read(found: object, where: Where) -> tuple[T, ...]:
        if not isinstance(found, list) or not least <= len(found) <= most:
            raise where.error(f"an array of {least} to {most} tables", _sized(found))
        return tuple(read_table(of, table, where.item(i)) for i, table in enumerate(found))

    return read


def named(of: type[T], least: int, most: int) -> Reader:
    """A table of tables, by names."""

    def read(found: object, where: Where) -> dict[str, T]:
        if not isinstance(found, dict) or not least <= len(found) <= most:
            raise where.error(f"{least} to {most} tables by name", _sized(found))
        return {name(key, where): read_table(of, found[key], where.at(key)) for key in found}

    return read


# ---- tables --------------------------------------------------------------------------------------


def read_table(of: type[T], found: object, where: Where) -> T:
    """The dataclass `of` from a table that has its fields, all of them and no others.

    Raises
    ------
    ProfileError
        The table is not as it should be; the sentence has file, key, expected and found.
    """
    readers = _readers(of)
    table = _entry(found, where, tuple(readers))
    values = {}
    for key, (reader, needed) in readers.items():
        if key in table or needed:
            values[key] = reader(table.get(key), where.at(key))
    made = of(**values)
    check = getattr(made, "check", None)
    if check is not None:
        check(where)
    return made


def read_file(of: type[T], path: Path) -> T:
    """The dataclass `of` from a TOML file.

    Raises
    ------
    ProfileError
        The file is not as it should be.
    OSError
        It cannot be read.
    """
    where = Where(str(path))
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise where.error(f"a file of at most {MAX_BYTES} bytes", Words("more"))
    try:
        table = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise where.error("TOML", Words(" ".join(str(error).split())[:200])) from None
    return read_table(of, table, where)


def _readers(of: type[Any]) -> Mapping[str, tuple[Reader, bool]]:
    """For each field what reads it, and whether it must be there."""
    hints = get_type_hints(of, include_extras=True)
    found = {}
    for field in dataclasses.fields(of):
        hint = hints[field.name]
        annotated = getattr(hint, "__metadata__", None)
        # a dataclass, which may be one of `Battery | None`
        inner = next((h for h in (hint, *get_args(hint)) if dataclasses.is_dataclass(h)), None)
        reader = annotated[0] if annotated else _table_of(inner)
        needed = field.default is field.default_factory is dataclasses.MISSING
        found[field.name] = (reader, needed)
    return found


def _table_of(of: Any) -> Reader:
    return lambda found, where: read_table(of, found, where)


def _entry(found: object, where: Where, keys: tuple[str, ...]) -> dict[str, Any]:
    """A table with no other keys."""
    if not isinstance(found, dict):
        raise where.error(f"a table of {', '.join(keys)}", found)
    for key in found:
        if key not in keys:
            raise where.at(key).error(f"one of {', '.join(keys)}", key)
    return found


def _origin(entry: Mapping[str, Any], where: Where) -> tuple[str, str]:
    if ("source" in entry) == ("assumed" in entry):
        found = Words("both") if "source" in entry else None
        raise where.error("either a source or why it is assumed", found)
    if "source" in entry:
        return text(entry["source"], where.at("source")), ""
    return "", text(entry["assumed"], where.at("assumed"))


def _range(found: object, where: Where, least: float, most: float) -> tuple[float, float]:
    if not isinstance(found, list) or len(found) != 2:
        raise where.error("a list of two numbers, lowest and highest", _sized(found))
    low, high = (_bounded(v, where.item(i), least, most) for i, v in enumerate(found))
    return low, high


def _bounded(found: Any, where: Where, least: float, most: float, *, whole: bool = False) -> float:
    """A number in bounds; NaN is in none."""
    isnumber = isinstance(found, (int, float)) and not isinstance(found, bool)
    if isnumber and least <= found <= most and (not whole or found == int(found)):
        return float(found)
    kind = "whole number" if whole else "number"
    raise where.error(f"a {kind} from {least:g} to {most:g}", found)


def _sized(found: object) -> object:
    return Words(f"{len(found)}") if isinstance(found, (list, dict)) else found


def _shown(found: object) -> str:
    """What was found, in few words; it may be of any size and kind."""
    match found:
        case None:
            return "nothing"
        case Words():
            return str(found)
        case dict():
            return "a table"
        case list():
            return "a list"
        case int() if found.bit_length() > 64:  # Python does not print all of them
            return f"a number of {found.bit_length()} bits"
        case str():
            shown = ascii(found[:_SHOWN])
        case _:
            shown = repr(found)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
