"""Writes profiles as TOML, which `profile.load_profile` reads back unchanged."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from halfbyte.device.kernels import Kernels
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Quantity, Steps
from halfbyte.device.tab import Tab


def to_toml(tables: Profile | Kernels | Tab) -> str:
    """The text of the TOML file."""
    return "\n".join(_table(tables, "")).lstrip("\n") + "\n"


def _table(table: Any, key: str) -> Iterator[str]:
    """The lines of a table: plain values before tables, which in TOML would claim them."""
    fields = [(field.name, getattr(table, field.name)) for field in dataclasses.fields(table)]
    present = [(name, value) for name, value in fields if value is not None]
    lines = [(name, _inline(value)) for name, value in present]
    yield from (f"{name} = {line}" for name, line in lines if line)
    for (name, value), (_, line) in zip(present, lines, strict=True):
        if not line:
            yield from _tables(value, f"{key}.{name}" if key else name)


def _tables(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, tuple):
        for item in value:
            yield from ("", f"[[{key}]]", *_table(item, key))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _tables(item, f"{key}.{name}")
    else:
        yield from ("", f"[{key}]", *_table(value, key))


def _inline(value: Any) -> str:
    """A value on one line; empty for tables."""
    match value:
        case Quantity():
            parts = [f"value = {_number(value.value)}"]
            if (value.low, value.high) != (value.value, value.value) or value.assumed:
                parts.append(f"range = [{_number(value.low)}, {_number(value.high)}]")
            return _with_origin(parts, value)
        case Steps():
            values = ", ".join(map(_number, value.values))
            return _with_origin([f"value = [{values}]"], value)
        case str() | int():
            return json.dumps(value, ensure_ascii=False)
        case (str(), str()):
            return json.dumps(value, ensure_ascii=False)
        case _:
            return ""


def _with_origin(parts: list[str], value: Quantity | Steps) -> str:
    key = "source" if value.source else "assumed"
    text = json.dumps(getattr(value, key), ensure_ascii=False)
    return f"{{ {', '.join([*parts, f'{key} = {text}'])} }}"


def _number(value: float) -> str:
    """The shortest text that reads back the same."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
