"""How much memory the machine has, and how much of it is available."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from halfbyte.errors import OutOfMemoryError


def available_bytes() -> float:
    """Memory that this process may still allocate; infinite where the system does not report it.

    The least of: memory that is free or can be freed without writing, and the remainders of the
    control group's and the address space's limits.
    """
    return min(machine_bytes(), _free_bytes(), _group_bytes(), _address_bytes())


def _free_bytes() -> float:
    numbers = _numbers("/proc/meminfo", ":")
    if "MemAvailable" not in numbers:
        return math.inf
    return 1024 * (numbers["MemAvailable"] + numbers.get("SwapFree", 0))


def _group_bytes(folder: str = "/sys/fs/cgroup") -> float:
    """Linux control groups, version 2, as seen inside a container."""
    try:
        most = int(Path(folder, "memory.max").read_text("ascii"))
        used = int(Path(folder, "memory.current").read_text("ascii"))
    except (OSError, ValueError):  # no limit, or "max"
        return math.inf
    cached = _numbers(f"{folder}/memory.stat", " ")  # pages of files can be read again
    return most - used + cached.get("active_file", 0) + cached.get("inactive_file", 0)


def _address_bytes() -> float:
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most == resource.RLIM_INFINITY:
            return math.inf
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        return most - pages * resource.getpagesize()
    except (ImportError, AttributeError, OSError):  # JupyterLite has an empty module of this name
        return math.inf


def _numbers(path: str, separator: str) -> dict[str, int]:
    """Numbers by name, of a file with one name and number per line."""
    try:
        lines = Path(path).read_text("ascii").splitlines()
    except OSError:
        return {}
    parts = [line.partition(separator) for line in lines]
    return {name: int(rest.split()[0]) for name, _, rest in parts if rest.split()}


@contextmanager
def memory_for(what: str) -> Iterator[None]:
    """Raise Python's `MemoryError` as `OutOfMemoryError`, which says what the memory was for."""
    try:
        yield
    except MemoryError as error:
        reason = str(error) or "nothing is left"
        raise OutOfMemoryError(f"{what}: no memory: {reason}") from error


def machine_bytes() -> float:
    """Memory of this machine; infinite where the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return float("inf")
