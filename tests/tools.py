"""The repository's tools as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_tool(repository: Path, name: str) -> ModuleType:
    """`tools/<name>.py`, imported."""
    spec = importlib.util.spec_from_file_location(name, repository / f"tools/{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where its dataclasses look for it
    spec.loader.exec_module(module)
    return module
