"""The repository's tools as modules; waiting, locks and limits of the system for tests."""

from __future__ import annotations

import fcntl
import importlib.util
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType


def load_tool(repository: Path, name: str) -> ModuleType:
    """Import `tools/<name>.py`."""
    spec = importlib.util.spec_from_file_location(name, repository / f"tools/{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where its dataclasses look for it
    spec.loader.exec_module(module)
    return module


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(1e-4)  # the thread it waits for may need this core


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """For installing and building: the other workers of a test run wait until it is done."""
    with (Path(tempfile.gettempdir()) / "halfbyte-tests.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        yield


@contextmanager
def largest(size: int) -> Iterator[None]:
    """Files of this process and its children grow to at most `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
