"""Imports the package's modules in an order, and prints digests of their global values as JSON.

python -m tests.support.imports shuffled SEED    # {"module.NAME": digest} after importing all
python -m tests.support.imports first            # of each module, imported before all others
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from unittest.mock import MagicMock

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = {"runtime/halfbyte": "halfbyte", "quantize": "halfbyte.quantize", "web": "halfbyte.web"}
COMMAND = "halfbyte.__main__"  # runs when it is imported


def sources() -> dict[str, Path]:
    """Every module of the package, and its file."""
    files = {}
    for folder, package in FOLDERS.items():
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            parts = path.relative_to(REPOSITORY / folder).with_suffix("").parts
            files[".".join((package, *(p for p in parts if p != "__init__")))] = path
    return files


def modules() -> list[str]:
    """Every module but the command."""
    return [name for name in sources() if name != COMMAND]


def imports() -> dict[str, set[str]]:
    """The modules of the package that each imports, also in functions and for type checking."""
    files = sources()
    imported: dict[str, set[str]] = {}
    for name, path in files.items():
        named = set()
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                named |= {n if n in files else node.module for n in whole}
        imported[name] = (named & files.keys()) - {name}
    return imported


def digests(names: list[str]) -> dict[str, str]:
    """A digest of each global value of these modules, without submodules."""
    values = {}
    for name in sorted(names):
        for key, value in sorted(vars(sys.modules[name]).items()):
            if not key.startswith("__") and not isinstance(value, ModuleType):
                text = "\n".join(described(value, frozenset()))
                values[f"{name}.{key}"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return values


def described(value: Any, inside: frozenset[int]) -> Iterator[str]:
    """Lines that describe a value and are the same in every process; dicts keep their order."""
    if id(value) in inside:
        yield "..."
        return
    inside |= {id(value)}
    yield type(value).__qualname__
    if isinstance(value, type | FunctionType):
        yield f"{value.__module__}.{value.__qualname__}"
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield f"{value.dtype}{value.shape}{hashlib.sha256(value.tobytes()).hexdigest()}"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from described(key, inside)
            yield from described(item, inside)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from described(item, inside)
    elif isinstance(value, set | frozenset):
        yield from sorted("|".join(described(item, inside)) for item in value)
    elif is_dataclass(value):
        for field in fields(value):
            yield from described(getattr(value, field.name, None), inside)
    elif isinstance(value, str | bytes | int | float | complex | np.generic | np.dtype | Enum):
        yield repr(value)
    elif isinstance(value, re.Pattern):
        yield repr(value.pattern)
    elif value is None or isinstance(value, Path):
        yield str(value)


def shuffled(seed: str) -> dict[str, str]:
    """Digests after importing all modules in an order of this seed."""
    names = modules()
    order = random.Random(seed).sample(names, len(names))
    for name in order:
        importlib.import_module(name)
    return digests(names)


def first() -> dict[str, str]:
    """Digests of each module when it is imported before all others.

    The modules that a package imports always come after it.
    """
    values, names, seen = dict[str, str](), modules(), set[str]()
    for name in names:
        if name in seen:
            continue
        for imported in [n for n in sys.modules if n.partition(".")[0] == "halfbyte"]:
            del sys.modules[imported]
        importlib.import_module(name)
        here = [n for n in names if f"{n}.".startswith(f"{name}.") and n in sys.modules]
        values |= digests(here)
        seen.update(here)
    return values


if __name__ == "__main__":
    sys.modules |= {"js": MagicMock(), "pyodide": MagicMock(), "pyodide.ffi": MagicMock()}
    TASKS: dict[str, Callable[..., dict[str, str]]] = {"shuffled": shuffled, "first": first}
    print(json.dumps(TASKS[sys.argv[1]](*sys.argv[2:])))
