"""``halfbyte device measure``: this machine's limits, and how near each kind of kernel comes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from halfbyte import packing
from halfbyte.backends.native import NativeExecutable
from halfbyte.bench import dot_peak, read_bandwidth
from halfbyte.device.cost import Work, counts_operations, kind_of, work_of
from halfbyte.device.kernels import HOST, Kernel
from halfbyte.device.quantity import Quantity
from halfbyte.device.reference import Shape, reference_model
from halfbyte.device.reference_graphs import Made, of_many_rows, of_one_row
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.stages import Runner
from halfbyte.planning import Settings, plan

# Weights of the first do not fit into caches, those of the second fit into a core's own.
_LARGE = Shape(1536, 7, 12, 4, 4096, 32000)
_SMALL = Shape(256, 1, 4, 2, 768, 512)
TYPES = ("Q4_0", "Q8_0", "Q4_K", "Q6_K", "F16", "F32")
_TOKEN = {"n": 1, "position": 256, "rows": 1}
_PROMPT = {"n": 128, "position": 0, "rows": 1}
_IN_CACHE, _IN_MEMORY = 512, 5120  # columns of square matrices
_CODES = ("matmul_codes", "conv2d_codes")
_HOST_SPREAD = (0.1, 4.0)
_HOST_WHY = "NumPy's operators 10 to 400 %, since few of them stand for all"
_FLOAT_SHARE = 0.9  # of the peak that products of floats reach, by which the peak is found
_REPETITIONS = 9


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


@dataclass
class _Timed:
    """One run: work and seconds by kind, and seconds of the whole from Python."""

    work: dict[str, Work]
    seconds: dict[str, float]
    whole: float

    def rate(self, kind: str) -> float:
        """Operations/s of products and attention, bytes/s of activations of other kinds."""
        work = self.work[kind]
        amount = work.operations if counts_operations(kind) else work.passing
        return amount / self.seconds[kind]


def measure(threads: int, step: Callable[[str], None] = lambda _: None) -> Measured:
    """Measure this machine, on one thread and on all; takes about three minutes.

    Parameters
    ----------
    threads : int
        All that are to be used.
    step : callable
        Told what is being measured, for a progress bar: `len(TYPES)` + 2 times.
    """
    step("memory and dot product")
    counts = sorted({1, threads})
    found = Measured(
        {n: read_bandwidth(n) * 1e9 for n in counts}, {n: dot_peak(n) * 1e9 for n in counts}
    )
    timed: dict[tuple[str, str], list[_Timed]] = {}
    beside: dict[tuple[str, str], float] = {}  # bandwidth, which changes from minute to minute
    for kind in TYPES:
        step(kind)
        for n in counts:  # the best of all that other work on the machine leaves
            found.bandwidth[n] = max(found.bandwidth[n], read_bandwidth(n) * 1e9)
            found.int8[n] = max(found.int8[n], dot_peak(n) * 1e9)
        for weights in ("packed", "mapped") if kind.startswith("Q") else ("packed",):
            memory = [read_bandwidth(1)]
            timed[kind, weights] = [
                run
                for shape in (_LARGE, _SMALL)
                for run in _timed(shape, kind, weights, (_TOKEN, _PROMPT))
            ]
            memory.append(read_bandwidth(1))
            beside[kind, weights] = statistics.fmean(memory) * 1e9
    found.float32 = timed["F32", "packed"][3].rate("matmul_f32") / _FLOAT_SHARE
    small = timed["Q4_0", "packed"][2]
    calls = sum(work.calls for work in small.work.values())
    found.call = max(small.whole - sum(small.seconds.values()), 0.0)
    found.launch = float(np.median([s / small.work[k].calls for k, s in small.seconds.items()]))
    found.launch = min(found.launch, sum(small.seconds.values()) / calls)
    for key, runs in timed.items():
        _add_fractions(found, beside[key], *runs)
    step("graphs")
    _add_graph_fractions(
        found,
        read_bandwidth(1) * 1e9,
        *map(_timed_graph, (of_many_rows(), of_one_row(_IN_CACHE), of_one_row(_IN_MEMORY))),
    )
    return found


def _add_fractions(
    found: Measured,
    bandwidth: float,
    token: _Timed,
    prompt: _Timed,
    small_token: _Timed,
    _: _Timed,
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
    found: Measured, bandwidth: float, many: _Timed, cached: _Timed, one: _Timed
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


def is_int8(kind: str) -> bool:
    """Whether a kind of kernel is measured against the int8 dot product's peak."""
    return kind.startswith("matmul_int8_") or kind.startswith(_CODES)


def _timed(
    shape: Shape, kind: str, weights: str, runs: tuple[Mapping[str, int], ...]
) -> list[_Timed]:
    """Each of these runs of a made-up decoder; the least time of each instruction counts."""
    file = reference_model(shape, kind)
    planned = plan(file, Settings(weights=weights))
    packing.pack(planned.to_pack, file, 1)
    program = planned.program
    executable = NativeExecutable(program)
    executable.array(program.inputs["ids"])[:] = np.arange(planned.settings.batch) % 100
    found = [_timed_run(executable, registers) for registers in runs]
    executable.close()
    return found


def _timed_graph(made: Made) -> _Timed:
    """The same for a made-up graph."""
    (program,) = Runner(prepare(made.model()), NativeExecutable).plan(made.feeds)
    executable = NativeExecutable(program)
    for name, buffer in program.inputs.items():
        executable.array(buffer)[...] = made.feeds[name]
    found = _timed_run(executable, {})
    executable.close()
    return found


def _timed_run(executable: NativeExecutable, registers: Mapping[str, int]) -> _Timed:
    """One of several runs, in which each instruction took the least time."""
    program = executable.program
    whole, seconds = np.inf, np.full(len(program.instructions), np.inf)
    for _ in range(_REPETITIONS):
        start = time.perf_counter()
        executable.run(dict(registers))
        whole = min(whole, time.perf_counter() - start)
        seconds = np.minimum(seconds, executable.profile(dict(registers)))
    by_kind: dict[str, float] = {}
    for instruction, spent in zip(program.instructions, seconds, strict=True):
        name = kind_of(instruction)
        by_kind[name] = by_kind.get(name, 0.0) + max(float(spent), 1e-9)
    return _Timed(work_of(program, registers), by_kind, whole)
