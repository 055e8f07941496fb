"""Reading TOML files whose keys and their types are all known."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from halfbyte.errors import FormatError

MAX_BYTES = 1 << 24  # of a handwritten file

_TYPE_NAMES = {
    bool: "true or false",
    str: "text",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


def read_toml(path: Path) -> Section:
    """The top level of a file.

    Raises
    ------
    FormatError
        It is not TOML, or too long.
    OSError
        It cannot be read.
    """
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise FormatError(f"{path}: expected at most {MAX_BYTES:,} bytes, found more")
    try:
        return Section(path, "", tomllib.loads(raw.decode("utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{path}: expected TOML: {error}") from None


class Section:
    """A table of a file; keys are taken one by one, and `finish` refuses those that remain."""

    def __init__(self, path: Path, where: str, values: dict[str, Any]) -> None:
        self.path, self._where = path, where
        self._left = dict(values)
        self._known: list[str] = []

    def error(self, key: str, expected: str, found: object) -> FormatError:
        """The error of a value that cannot be used."""
        return FormatError(
            f"{self.path}: key '{self._name(key)}': expected {expected}, found {found!r}"
        )

    def _name(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def take(self, key: str, kind: type, default: Any = None) -> Any:
        """The value of a key, of this type, or the default; whole numbers count as floats."""
        self._known.append(key)
        if key not in self._left:
            return default
        value = self._left.pop(key)
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise self.error(key, _TYPE_NAMES[kind], value)
        return float(value) if kind is float else value

    def items(self, key: str, kind: type) -> list[Any]:
        """A list whose items all have this type."""
        values = self.take(key, list, [])
        for number, value in enumerate(values):
            if not isinstance(value, kind) or isinstance(value, bool):
                raise self.error(f"{key}[{number}]", _TYPE_NAMES[kind], value)
        return list(values)

    def choice(self, key: str, choices: tuple[str, ...]) -> str | None:
        """One of the choices; None where the key is missing."""
        value: str | None = self.take(key, str)
        if value is not None and value not in choices:
            raise self.error(key, f"one of {', '.join(choices)}", value)
        return value

    def sections(self, key: str) -> list[Section]:
        """A list of tables: [[key]]."""
        return [
            Section(self.path, f"{self._name(key)}[{number}]", values)
            for number, values in enumerate(self.items(key, dict))
        ]

    def finish(self) -> None:
        """Refuse keys that were not taken."""
        if self._left:
            key, value = next(iter(self._left.items()))
            raise self.error(key, f"one of the keys {', '.join(self._known)}", value)
