"""Profiles as TOML, which `profile.load_profile` reads back as they were."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from halfbyte.device.kernels import Kernels
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Quantity, Steps
from halfbyte.device.tab import Tab


def to_toml(found: Profile | Kernels | Tab) -> str:
    """The text of a file of it."""
    return "\n".join(_table(found, "")).lstrip("\n") + "\n"


def _table(found: Any, key: str) -> Iterator[str]:
    """What is on a line of its own first: in TOML it would belong to the last table else."""
    fields = [(field.name, getattr(found, field.name)) for field in dataclasses.fields(found)]
    present = [(name, value) for name, value in fields if value is not None]
    lines = [(name, _inline(value)) for name, value in present]
    yield from (f"{name} = {line}" for name, line in lines if line)
    for (name, value), (_, line) in zip(present, lines, strict=True):
        if not line:
            yield from _tables(value, f"{key}.{name}" if key else name)


def _tables(found: Any, key: str) -> Iterator[str]:
    if isinstance(found, tuple):
        for item in found:
            yield from ("", f"[[{key}]]", *_table(item, key))
    elif isinstance(found, Mapping):
        for name, item in found.items():
            yield from _tables(item, f"{key}.{name}")
    else:
        yield from ("", f"[{key}]", *_table(found, key))


def _inline(found: Any) -> str:
    """A value of one line; empty for what is a table."""
    match found:
        case Quantity():
            parts = [f"value = {_number(found.value)}"]
            if (found.low, found.high) != (found.value, found.value) or found.assumed:
                parts.append(f"range = [{_number(found.low)}, {_number(found.high)}]")
            return _with_origin(parts, found)
        case Steps():
            values = ", ".join(map(_number, found.values))
            return _with_origin([f"value = [{values}]"], found)
        case str() | int():
            return json.dumps(found, ensure_ascii=False)
        case (str(), str()):
            return json.dumps(found, ensure_ascii=False)
        case _:
            return ""


def _with_origin(parts: list[str], found: Quantity | Steps) -> str:
    key = "source" if found.source else "assumed"
    words = json.dumps(getattr(found, key), ensure_ascii=False)
    return f"{{ {', '.join([*parts, f'{key} = {words}'])} }}"


def _number(value: float) -> str:
    """The shortest that reads back the same."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
