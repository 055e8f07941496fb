"""``halfbyte device measure``: this machine's limits, and how near each kind of kernel comes."""

from __future__ import annotations

import platform
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from halfbyte.backends.memory import machine_bytes
from halfbyte.bench import dot_peak, read_bandwidth
from halfbyte.device.kernels import HOST, Kernel
from halfbyte.device.profile import Memory, Overhead, Profile, load_profile
from halfbyte.device.quantity import Quantity, Steps
from halfbyte.device.timing import Timed, decoders, float_rate, graphs

TYPES = ("Q4_0", "Q8_0", "Q4_K", "Q6_K", "F16", "F32")
_CODES = ("matmul_codes", "conv2d_codes")
_HOST_SPREAD = (0.1, 4.0)
_HOST_WHY = "NumPy's operators 10 to 400 %, since few of them stand for all"
_FLOAT_SHARE = 0.9  # of the peak that products of floats reach, by which the peak is found


@dataclass
class Measured:
    """A machine's limits, by threads where it says so.

    Attributes
    ----------
    bandwidth : dict of int to float
        Bytes/s of memory.
    int8 : dict of int to float
        Operations/s of the dot product.
    float32 : float
        Operations/s of one thread.
    launch, call : float
        Seconds of an instruction and of a run beside their work, on one thread.
    kernels : dict of kind to tuple
        Fractions (prompt, token, memory) as in :class:`halfbyte.device.kernels.Kernel`.
    """

    bandwidth: dict[int, float]
    int8: dict[int, float]
    float32: float = 0.0
    launch: float = 0.0
    call: float = 0.0
    kernels: dict[str, tuple[float, float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where kernels run that are measured against this machine's limits: in this process, or not.

    `decoders` and `graphs` do there what the functions of these names do here. A place that cannot
    map has no weights in the order of the file.
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
        All that are to be used.
    step : callable
        Told what is being measured, for a progress bar: `len(TYPES)` + 2 times.
    place : Place
        Where the kernels run; the limits are this process's.
    """
    step("memory and dot product")
    found = limits(counts := sorted({1, threads}))
    timed: dict[tuple[str, str], list[Timed]] = {}
    beside: dict[tuple[str, str], float] = {}  # bandwidth, which changes from minute to minute
    for kind in TYPES:
        step(kind)
        for n in counts:  # the best of all that other work on the machine leaves
            found.bandwidth[n] = max(found.bandwidth[n], read_bandwidth(n) * 1e9)
            found.int8[n] = max(found.int8[n], dot_peak(n) * 1e9)
        for weights in ("packed", "mapped") if kind.startswith("Q") and place.maps else ("packed",):
            memory = [read_bandwidth(1)]
            timed[kind, weights] = place.decoders(kind, weights)
            memory.append(read_bandwidth(1))
            beside[kind, weights] = statistics.fmean(memory) * 1e9
    found.launch, found.call = overheads(timed["Q4_0", "packed"][2])
    for key, runs in timed.items():
        _add_fractions(found, beside[key], *runs)
    step("graphs")
    _add_graph_fractions(found, read_bandwidth(1) * 1e9, *place.graphs())
    return found


def limits(counts: Sequence[int] = (1,)) -> Measured:
    """What this machine can do with so many threads, without any kernel."""
    return Measured(
        {n: read_bandwidth(n) * 1e9 for n in counts},
        {n: dot_peak(n) * 1e9 for n in counts},
        float_rate() / _FLOAT_SHARE,
    )


def overheads(small: Timed) -> tuple[float, float]:
    """Seconds of an instruction and of a run beside their work, by a small decoder's token."""
    computing = sum(small.seconds.values())
    launch = float(np.median([s / small.work[k].calls for k, s in small.seconds.items()]))
    calls = sum(work.calls for work in small.work.values())
    return min(launch, computing / calls), max(small.whole - computing, 0.0)


def _add_fractions(
    found: Measured,
    bandwidth: float,
    token: Timed,
    prompt: Timed,
    small_token: Timed,
    _: Timed,
) -> None:
    """Those of a decoder's kinds; `bandwidth` was measured beside them."""
    for kind in prompt.seconds:
        if kind in found.kernels:
            continue
        peak = found.int8[1] if is_int8(kind) else found.float32
        memory = 1.0
        if kind.startswith("matmul_"):
            memory = min(token.work[kind].held / token.seconds[kind] / bandwidth, 1.0)
        found.kernels[kind] = (
            prompt.rate(kind) / peak, small_token.rate(kind) / peak, memory
        )  # fmt: skip


def _add_graph_fractions(
    found: Measured, bandwidth: float, many: Timed, cached: Timed, one: Timed
) -> None:
    """Those of a graph of many rows; products also by one row, of small and of large matrices."""
    for kind in many.seconds.keys() - found.kernels.keys():
        peak = found.int8[1] if is_int8(kind) else found.float32
        prompt = token = many.rate(kind) / peak
        memory = 1.0
        if kind in one.seconds:
            token = cached.rate(kind) / peak
        if kind in one.seconds and one.work[kind].held:
            memory = min(one.work[kind].held / one.seconds[kind] / bandwidth, 1.0)
        found.kernels[kind] = prompt, token, memory


def kernels_of(
    measured: Measured, source: str, spread: tuple[float, float] = (1.0, 1.0)
) -> dict[str, Kernel]:
    """The fractions as a profile has them, within `spread` times what was measured.

    What NumPy does is many things, some measured ones among them: its range is wide anywhere.
    """

    def quantity(value: float, kind: str) -> Quantity:
        least, most = _HOST_SPREAD if kind == HOST else spread
        low, value, high = (float(f"{value * f:.3g}") for f in (least, 1.0, most))
        return Quantity(value, low, high, f"{source}; {_HOST_WHY}" if kind == HOST else source)

    return {
        kind: Kernel(
            "int8" if is_int8(kind) else "float32", *(quantity(f, kind) for f in fractions)
        )
        for kind, fractions in sorted(measured.kernels.items())
    }


def machine_profile(measured: Measured, name: str = "this-machine") -> Profile:
    """What was measured as a profile; heat and power, which were not, are a thin laptop's."""
    like, today = load_profile(_LIKE), datetime.now(tz=UTC).date()
    source = f"halfbyte device measure, {today}"

    def known(value: float, digits: int = 4) -> Quantity:
        value = float(f"{value:.{digits}g}")
        return Quantity(value, value, value, source)

    threads = max(measured.int8)
    hertz = _frequency()
    cluster = replace(
        like.clusters[0],
        name="cores",
        cores=known(threads),
        frequencies_mhz=Steps((hertz / 1e6,), "what the system says, or 1000"),
        voltages_mv=Steps((1000.0,), assumed="only what is taken at this frequency matters"),
        dynamic_power_uw_per_mhz_v2=_assumed(_CORE_W / (hertz / 1e6) * 1e6, 3.0, "6 W a core"),
        int8_ops_per_cycle=known(measured.int8[threads] / threads / hertz),
        float32_ops_per_cycle=known(measured.float32 / hertz),
    )
    memory = Memory(
        ram_mb=Quantity(ram := machine_bytes() / 1e6, ram, ram, source),
        app_mb=_assumed(0.75 * ram, 1.2, "three quarters of the memory"),
        tab_mb=_assumed(min(0.5 * ram, 4000.0), 2.0, "a tab of 32 bits has at most 4 GB"),
        bandwidth_gb_s=known(max(measured.bandwidth.values()) / 1e9),
        core_bandwidth_gb_s=known(measured.bandwidth[1] / 1e9),
        storage_gb_s=_assumed(1.0, 4.0, "a solid-state disk; not measured"),
        cache_mb=_cache(),
    )
    overhead = Overhead(known(measured.launch * 1e6), known(measured.call * 1e6))
    return replace(
        like, name=name, title=_processor(), kind="machine", year=today.year, memory=memory,
        clusters=(cluster,), overhead=overhead, kernels=kernels_of(measured, source),
    )  # fmt: skip


_LIKE = "macbook-air-m1"
_CORE_W = 6.0


def _assumed(value: float, factor: float, why: str) -> Quantity:
    return Quantity(value, value / factor, value * factor, assumed=why)


def _system(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _processor() -> str:
    """Its name, as Linux has it, or the machine's kind."""
    match = re.search(r"^model name\s*:\s*(.+)$", _system("/proc/cpuinfo"), re.MULTILINE)
    name = match[1].strip() if match else platform.processor() or platform.machine()
    return name if name.isprintable() else "unknown"


def _frequency() -> float:
    """Hz at which it runs, as Linux has it; 1e9 where nobody knows, which changes no product."""
    match = re.search(r"^cpu MHz\s*:\s*([\d.]+)$", _system("/proc/cpuinfo"), re.MULTILINE)
    return round(float(match[1])) * 1e6 if match else 1e9


def _cache() -> Quantity:
    """The last cache of a core, as Linux has it."""
    texts = (
        _system(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size").strip()
        for index in range(8)
    )
    sizes = [int(t[:-1]) * 1024 / 1e6 for t in texts if re.fullmatch(r"\d{1,9}K", t)]
    if not sizes:
        return _assumed(8.0, 4.0, "the system does not say")
    return Quantity(max(sizes), max(sizes), max(sizes), "what the system says of the first core")


def is_int8(kind: str) -> bool:
    """Whether a kind of kernel is measured against the int8 dot product's peak."""
    return kind.startswith("matmul_int8_") or kind.startswith(_CODES)
