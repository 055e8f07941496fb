"""The repository's tools as modules; what tests need of the system."""

from __future__ import annotations

import fcntl
import importlib.util
import resource
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """For what is installed or built: a test run's other workers wait, and then find it done."""
    with (Path(tempfile.gettempdir()) / "halfbyte-tests.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        yield


@contextmanager
def largest(size: int) -> Iterator[None]:
    """No file of this process, or of those that it starts, grows larger than `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
