"""The number of fast cores: with one thread on each this machine is fastest.

Small cores and second threads of a core share memory, arithmetic units and heat with the others.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from halfbyte.core.backends.libraries import why_no_threads
from halfbyte.core.backends.tuning import AtMost

_SYSTEM = Path("/sys/devices")
MAX_BROWSER = 8  # threads in a tab: more hardly help, and each takes memory
_FAST = 0.5  # of the capacity of the fastest core, as rated by Linux


def fast_cores(processors: Iterable[int], system: Path = _SYSTEM) -> int:
    """Number of fast cores among these logical processors, at least 1, from Linux's /sys/devices.

    If it lists performance cores (x86) or rates capacities (ARM), slow cores do not count. Logical
    processors of the same core count once.
    """
    usable = set(processors)
    fast = usable & _performance(system) or _capable(usable, system) or usable
    return max(len({_core(cpu, system) for cpu in fast}), 1)


def default_threads() -> int:
    """One thread per fast core that this process may use; in a browser per core, at most 8."""
    if sys.platform == "emscripten":
        return 1 if why_no_threads() else AtMost(min(_browser_cores(), MAX_BROWSER))
    if sys.platform == "darwin":
        return _darwin_cores() or os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return fast_cores(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_threads(threads: int | None) -> int:
    """The number of threads for a caller's wish, None or 0 for the default."""
    if not threads:
        return default_threads()
    if threads > 1 and (reason := why_no_threads()):
        warnings.warn(f"threads={threads}: halfbyte uses one thread: {reason}", stacklevel=3)
        return 1
    return threads


def _browser_cores() -> int:
    navigator = getattr(import_module("js"), "navigator", None)  # absent in Node 20
    return int(getattr(navigator, "hardwareConcurrency", 0) or 1)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _numbers(text: str) -> set[int]:
    """Parse one of Linux's lists, such as "0-3,8"."""
    numbers: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _performance(system: Path) -> set[int]:
    return _numbers(_text(system / "cpu_core/cpus"))


def _capable(processors: set[int], system: Path) -> set[int]:
    ratings = {cpu: _text(system / f"system/cpu/cpu{cpu}/cpu_capacity") for cpu in processors}
    if not all(rating.isdigit() for rating in ratings.values()):
        return set()
    maximum = max(map(int, ratings.values()), default=0)
    return {cpu for cpu, rating in ratings.items() if int(rating) >= _FAST * maximum}


def _core(cpu: int, system: Path) -> str:
    """A text that is the same for all logical processors of a core."""
    siblings = _text(system / f"system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return siblings or str(cpu)


def _darwin_cores() -> int:
    import subprocess  # which takes milliseconds to import

    command = ["/usr/sbin/sysctl", "-n", "hw.perflevel0.physicalcpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return int(done.stdout) if done.stdout.strip().isdigit() else 0
