"""``halfbyte device measure``: this machine's limits, and the fractions that kernels reach."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from halfbyte.core.ops.operator import operator_of
from halfbyte.device.kernels import HOST, Kernel
from halfbyte.device.quantity import Quantity
from halfbyte.device.storage import storage_speed
from halfbyte.device.timing import Timed, decoders, float_rate, graphs
from halfbyte.text.bench import dot_peak, read_bandwidth
from halfbyte.weights import FORMATS

TYPES = tuple(name for name, format_ in FORMATS.items() if not format_.like)
_HOST_SPREAD = (0.1, 4.0)
_HOST_WHY = "NumPy's operators 10 to 400 %, since few of them stand for all"
_CACHED = 1.5  # times as fast as memory: the least speed of a cache
_FLOAT_SHARE = 0.9  # fraction of the peak that float products reach, which gives the peak


@dataclass
class Measured:
    """A machine's limits.

    Attributes
    ----------
    bandwidth : dict of int to float
        Bytes/s of memory, by threads.
    int8 : dict of int to float
        Operations/s of the dot product, by threads.
    float32 : float
        Operations/s of one thread.
    launch, call : float
        Seconds that an instruction and a run take besides their work, on one thread.
    kernels : dict of kind to tuple
        Fractions (prompt, token, memory) as in :class:`halfbyte.device.kernels.Kernel`.
    storage : float or None
        Bytes/s of reading files; None where it cannot be measured.
    cache : int or None
        Bytes that all threads read again faster than memory; 0 if none of the sizes that were
        tried, None if not measured.
    """

    bandwidth: dict[int, float]
    int8: dict[int, float]
    float32: float = 0.0
    launch: float = 0.0
    call: float = 0.0
    kernels: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    storage: float | None = None
    cache: int | None = None


def medians(passes: Sequence[Measured]) -> Measured:
    """The last of several passes, with the medians of all as each kind's fractions."""
    last = passes[-1]
    for kind in last.kernels:
        columns = zip(*(one.kernels[kind] for one in passes), strict=True)
        prompt, token, memory = map(statistics.median, columns)
        last.kernels[kind] = prompt, token, memory
    return last


@dataclass(frozen=True)
class Place:
    """Where the measured kernels run: in this process, or in a browser tab.

    `decoders` and `graphs` do there what these functions of `timing` do here. A place that does not
    map files has no weights in the order of the file.
    """

    decoders: Callable[[str, str], list[Timed]] = decoders
    graphs: Callable[[], list[Timed]] = graphs
    maps: bool = True


HERE = Place()


def measure(
    threads: int, step: Callable[[str], None] = lambda _: None, place: Place = HERE
) -> Measured:
    """Measure this machine, on one thread and on all; takes about three minutes.

    Parameters
    ----------
    threads : int
        The number of threads to use.
    step : callable
        Called with what is being measured, for a progress bar: ``len(TYPES) + 2`` times.
    place : Place
        Where the kernels run; the limits are this process's.
    """
    step("storage, memory and dot product")
    storage = storage_speed(Path.cwd()) if place.maps else None
    measured = limits(counts := sorted({1, threads}))
    measured.storage, measured.cache = storage, cached_bytes(threads)
    timed: dict[tuple[str, str], list[Timed]] = {}
    bandwidth: dict[tuple[str, str], float] = {}  # at that time: it changes every minute
    for type_ in TYPES:
        step(type_)
        for n in counts:  # the best of several, since other work on the machine disturbs
            measured.bandwidth[n] = max(measured.bandwidth[n], read_bandwidth(n) * 1e9)
            measured.int8[n] = max(measured.int8[n], dot_peak(n) * 1e9)
        maps = type_.startswith("Q") and place.maps
        for weights in ("packed", "mapped") if maps else ("packed",):
            memory = [read_bandwidth(1)]
            timed[type_, weights] = place.decoders(type_, weights)
            memory.append(read_bandwidth(1))
            bandwidth[type_, weights] = statistics.fmean(memory) * 1e9
    measured.launch, measured.call = overheads(timed["Q4_0", "packed"][2])
    for key, runs in timed.items():
        _add_fractions(measured, bandwidth[key], *runs)
    step("graphs")
    _add_graph_fractions(measured, read_bandwidth(1) * 1e9, *place.graphs())
    return measured


def limits(counts: Sequence[int] = (1,)) -> Measured:
    """This machine's limits with these numbers of threads, without fractions of kernels."""
    return Measured(
        {n: read_bandwidth(n) * 1e9 for n in counts},
        {n: dot_peak(n) * 1e9 for n in counts},
        float_rate() / _FLOAT_SHARE,
    )


def cached_bytes(threads: int) -> int:
    """The largest power of two, from 1 to 128 MiB, that is read faster than memory.

    What the system says of a virtual machine's caches is often its host's, which many share.
    """
    memory = read_bandwidth(threads)
    sizes = [1 << power for power in range(20, 28)]
    fast = [n for n in sizes if read_bandwidth(threads, 20, n) >= _CACHED * memory]
    return max(fast, default=0)


def overheads(small: Timed) -> tuple[float, float]:
    """Seconds that an instruction and a run take besides work, from a small decoder's token."""
    computing = sum(small.seconds.values())
    launch = float(np.median([s / small.work[k].calls for k, s in small.seconds.items()]))
    calls = sum(work.calls for work in small.work.values())
    return min(launch, computing / calls), max(small.whole - computing, 0.0)


def _add_fractions(
    measured: Measured,
    bandwidth: float,
    token: Timed,
    prompt: Timed,
    small_token: Timed,
    _: Timed,
) -> None:
    """Fractions of a decoder's kinds; `bandwidth` was measured at the same time."""
    for kind in prompt.seconds:
        if kind in measured.kernels:
            continue
        peak = measured.int8[1] if is_int8(kind) else measured.float32
        memory = 1.0
        if kind.startswith("matmul_"):
            memory = min(token.work[kind].held / token.seconds[kind] / bandwidth, 1.0)
        measured.kernels[kind] = (
            prompt.rate(kind) / peak, small_token.rate(kind) / peak, memory
        )  # fmt: skip


def _add_graph_fractions(
    measured: Measured, bandwidth: float, many: Timed, cached: Timed, one: Timed
) -> None:
    """Fractions of a graph's kinds: from many rows, and for products also from one row, with small
    (`cached`) and large matrices (`one`)."""
    for kind in many.seconds.keys() - measured.kernels.keys():
        peak = measured.int8[1] if is_int8(kind) else measured.float32
        prompt = token = many.rate(kind) / peak
        memory = 1.0
        if kind in one.seconds:
            token = cached.rate(kind) / peak
        if kind in one.seconds and one.work[kind].held:
            memory = min(one.work[kind].held / one.seconds[kind] / bandwidth, 1.0)
        measured.kernels[kind] = prompt, token, memory


def kernels_of(
    measured: Measured, source: str, spread: tuple[float, float] = (1.0, 1.0)
) -> dict[str, Kernel]:
    """The fractions as quantities of a profile; ranges are `spread` times the measured values, and
    with a spread, of other processors, the fractions are assumed.

    NumPy runs many operators, of which only some were measured: its range is always wide.
    """

    def quantity(value: float, kind: str) -> Quantity:
        smallest, largest = _HOST_SPREAD if kind == HOST else spread
        low, value, high = (float(f"{value * f:.3g}") for f in (smallest, 1.0, largest))
        why = f"{source}; {_HOST_WHY}" if kind == HOST else source
        return Quantity(value, low, high, *(("", why) if spread != (1.0, 1.0) else (why,)))

    return {
        kind: Kernel(
            "int8" if is_int8(kind) else "float32", *(quantity(f, kind) for f in fractions)
        )
        for kind, fractions in sorted(measured.kernels.items())
    }


def is_int8(kind: str) -> bool:
    """Whether a kind of kernel is measured against the int8 dot product's peak."""
    operator = operator_of(kind)
    if operator is None or not operator.product:
        return False
    return any(operand.dtype in ("i8", "u8") for operand in operator.inputs[:2])
