"""Times the reference models on this machine: seconds and work by kind of kernel."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from halfbyte.core import packing
from halfbyte.core.backends.native import NativeExecutable
from halfbyte.device.cost import F64, Work, kind_of, work_of
from halfbyte.device.reference import Shape, reference_model
from halfbyte.device.reference_graphs import GraphBuilder, many_rows_graph, one_row_graph
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner
from halfbyte.text.planning import Settings, plan

# The weights of _LARGE do not fit into caches, those of _SMALL fit into a core's own cache.
_LARGE = Shape(1536, 7, 12, 4, 4096, 32000)
_SMALL = Shape(256, 1, 4, 2, 768, 512)
_TOKEN = {"n": 1, "position": 256, "rows": 1}
_PROMPT = {"n": 128, "position": 0, "rows": 1}
_IN_CACHE, _IN_MEMORY = 512, 5120  # columns of square matrices
_PASSES, _PASSES_WITHOUT_CLOCK, _ENOUGH_S = 9, 400, 5.0  # limits; at least three passes


@dataclass
class Timed:
    """One run: work and seconds by kind, and seconds of the whole run as seen from Python."""

    work: dict[str, Work]
    seconds: dict[str, float]
    whole: float

    def rate(self, kind: str) -> float:
        """Operations/s of products and attention; bytes/s of activations of other kinds."""
        return self.work[kind].amount / self.seconds[kind]


def decoders(type_: str, weights: str) -> list[Timed]:
    """A token and a prompt of a large decoder in a weight type, then of a small one."""
    return [
        run
        for shape in (_LARGE, _SMALL)
        for run in _time_decoder(shape, type_, weights, (_TOKEN, _PROMPT))
    ]


def float_rate() -> float:
    """Operations/s of float32 products in a small decoder's prompt."""
    return _time_decoder(_SMALL, "F32", "packed", (_PROMPT,))[0].rate("matmul_f32")


def graphs() -> list[Timed]:
    """A graph of many rows, and graphs of one row with matrices in a cache and in memory."""
    builders = many_rows_graph(), one_row_graph(_IN_CACHE), one_row_graph(_IN_MEMORY)
    return list(map(_time_graph, builders))


def _time_decoder(
    shape: Shape, type_: str, weights: str, runs: tuple[Mapping[str, int], ...]
) -> list[Timed]:
    """Each of these runs of a reference decoder."""
    file = reference_model(shape, type_)
    planned = plan(file, Settings(weights=weights))
    program = packing.pack(planned.program, planned.to_pack, file, 1)
    executable = NativeExecutable(program)
    executable.array(program.inputs["ids"])[:] = np.arange(planned.settings.batch) % 100
    timed = [_time_runs(executable, registers) for registers in runs]
    executable.close()
    return timed


def _time_graph(builder: GraphBuilder) -> Timed:
    """A run of a reference graph."""
    (program,) = Runner(prepare(builder.model()), NativeExecutable).plan(builder.feeds)
    executable = NativeExecutable(program)
    for name, buffer in program.inputs.items():
        executable.array(buffer)[...] = builder.feeds[name]
    timed = _time_runs(executable, {})
    executable.close()
    return timed


def _time_runs(executable: NativeExecutable, registers: Mapping[str, int]) -> Timed:
    """Run several times; the least time of each instruction counts.

    Where C has no clock (WebAssembly), the time of a call is subtracted. A browser's clock has
    steps of microseconds, so times of short runs are means of the faster half of the runs.
    """
    program, clock = executable.program, executable.has_clock
    whole: list[float] = []
    passes: list[F64] = []
    calls: list[F64] = []
    start = time.perf_counter()
    limit = _PASSES if clock else _PASSES_WITHOUT_CLOCK
    while len(passes) < 3 or (len(passes) < limit and time.perf_counter() - start < _ENOUGH_S):
        began = time.perf_counter()
        executable.run(dict(registers))
        whole.append(time.perf_counter() - began)
        passes.append(executable.profile(dict(registers)))
        if not clock:
            calls.append(executable.profile_calls(dict(registers)))
    if len(passes) <= _PASSES:
        seconds, fastest = np.min(passes, axis=0), min(whole)
    else:
        seconds, fastest = _faster(passes), float(_faster(whole))
    if not clock:
        seconds = seconds - _faster(calls)
    by_kind: dict[str, float] = {}
    for instruction, spent in zip(program.instructions, seconds, strict=True):
        name = kind_of(instruction)
        by_kind[name] = by_kind.get(name, 0.0) + float(spent)
    by_kind = {name: max(spent, 1e-9) for name, spent in by_kind.items()}
    return Timed(work_of(program, registers), by_kind, fastest)


def _faster(passes: Sequence[F64] | Sequence[float]) -> F64:
    """The mean of the faster half."""
    return np.asarray(np.mean(sorted(passes, key=np.sum)[: (len(passes) + 1) // 2], axis=0))
