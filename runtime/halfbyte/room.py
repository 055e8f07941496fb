"""How much memory there is, and how much of it is left."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from halfbyte.errors import OutOfMemoryError


def available_bytes() -> float:
    """Memory that this process may still take; infinite where the system does not tell.

    What the machine has free, or can free without writing, and what is left of the limits of its
    control group and of its address space.
    """
    return min(machine_bytes(), _free_bytes(), _group_bytes(), _address_bytes())


def _free_bytes() -> float:
    numbers = _numbers("/proc/meminfo", ":")
    if "MemAvailable" not in numbers:
        return math.inf
    return 1024 * (numbers["MemAvailable"] + numbers.get("SwapFree", 0))


def _group_bytes(folder: str = "/sys/fs/cgroup") -> float:
    """Linux' control groups, version 2, as containers see their own."""
    try:
        most = int(Path(folder, "memory.max").read_text("ascii"))
        used = int(Path(folder, "memory.current").read_text("ascii"))
    except (OSError, ValueError):  # none, or "max"
        return math.inf
    kept = _numbers(f"{folder}/memory.stat", " ")  # pages of files can be read again
    return most - used + kept.get("active_file", 0) + kept.get("inactive_file", 0)


def _address_bytes() -> float:
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most == resource.RLIM_INFINITY:
            return math.inf
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        return most - pages * resource.getpagesize()
    except (ImportError, OSError):
        return math.inf


def _numbers(path: str, separator: str) -> dict[str, int]:
    """Lines of a name and a number."""
    try:
        lines = Path(path).read_text("ascii").splitlines()
    except OSError:
        return {}
    parts = [line.partition(separator) for line in lines]
    return {name: int(rest.split()[0]) for name, _, rest in parts if rest.split()}


@contextmanager
def memory_for(what: str) -> Iterator[None]:
    """Python's `MemoryError` inside becomes ours, which says what there was no memory for."""
    try:
        yield
    except MemoryError as error:
        reason = str(error) or "nothing is left"
        raise OutOfMemoryError(f"{what}: no memory: {reason}") from error


def machine_bytes() -> float:
    """Memory of this machine; infinite where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return float("inf")
