"""Profiles as events for Chrome, Perfetto and tools for ONNX Runtime's profiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from halfbyte.core.buffer import Buffer
from halfbyte.core.dtypes import DTYPES
from halfbyte.core.instruction import Instruction
from halfbyte.core.profiling import Call, Kinds, Profile, Run

_KERNELS, _NUMPY = 0, 1  # rows of a trace

Element = Callable[[np.dtype[Any]], str]  # a type's name


def chrome_trace(
    profile: Profile,
    *,
    backend: str = "native",
    threads: int = 1,
    start: float | None = None,
    element: Element = str,
) -> list[dict[str, Any]]:
    """A profile's events in Chrome's trace format.

    Calls of kernels are complete events of the category Node, in the row of kernels or of NumPy
    operators; spans are of the category Session. Instructions of one run follow each other without
    gaps, since only durations are measured. Keys of `args` are ONNX Runtime's, plus kernel,
    threads, bytes, operations and the program's sizes.

    Parameters
    ----------
    profile : Profile
        With `keep_events`.
    backend : str
        The backend that ran it, for the rows' names.
    threads : int
        The number of threads that shared each kernel's work.
    start : float, optional
        Time 0, of `time.perf_counter`; by default the first event's.
    element : callable
        Returns the name of an element type.

    Returns
    -------
    list of dict
        To be written as JSON; times in microseconds.
    """
    first = min((e.start for e in profile.events), default=0.0) if start is None else start
    titles = {_KERNELS: f"kernels ({backend}, {threads} threads)", _NUMPY: "numpy"}
    events = [_event("__metadata", "thread_name", r, 0, 0, {"name": n}) for r, n in titles.items()]
    for event in profile.events:
        at = event.start - first
        if isinstance(event, Run):
            events += _instructions(event, at, backend, threads, element)
        elif isinstance(event, Call):
            arguments = _arguments(event.operator, f"numpy:{event.operator}", 1, event.bytes, 0)
            kinds = {"input_type_shape": event.inputs, "output_type_shape": event.outputs}
            events.append(_node(event.name, _NUMPY, at, event.seconds, arguments | kinds))
        else:
            events.append(_event("Session", event.name, _KERNELS, at, event.seconds, {}))
    if profile.left_out:
        note = f"{profile.left_out} later events are left out"
        events.append(_event("Session", note, _KERNELS, at, 0, {}) | {"ph": "i", "s": "g"})
    return events


def _event(
    category: str, name: str, row: int, start: float, seconds: float, arguments: dict[str, Any]
) -> dict[str, Any]:
    return {
        "cat": category, "name": name, "ph": "M" if category == "__metadata" else "X",
        "pid": os.getpid(), "tid": row, "ts": round(start * 1e6, 3),
        "dur": round(seconds * 1e6, 3), "args": arguments,
    }  # fmt: skip


def _node(
    name: str, row: int, start: float, seconds: float, arguments: dict[str, Any]
) -> dict[str, Any]:
    return _event("Node", f"{name}_kernel_time", row, start, seconds, arguments)


def _arguments(
    operator: str, kernel: str, threads: int, moved: int, operations: int
) -> dict[str, Any]:
    return {
        "op_name": operator, "provider": "CPUExecutionProvider", "kernel": kernel,
        "threads": threads, "bytes": moved, "operations": operations,
    }  # fmt: skip


def _instructions(
    run: Run, start: float, backend: str, threads: int, element: Element
) -> Iterator[dict[str, Any]]:
    """One event per instruction, beginning at `start`."""
    for instruction, seconds in zip(run.program.instructions, run.seconds, strict=False):
        name = instruction.operator.onnx
        numpy = instruction.operator.host or backend == "numpy"
        arguments = _arguments(
            name, instruction.operator.kernel(instruction), 1 if numpy else threads,
            instruction.bytes_moved(run.registers), instruction.operations(run.registers),
        )  # fmt: skip
        arguments |= _kinds(instruction, run.registers, element) | dict(run.registers)
        row = _NUMPY if numpy else _KERNELS
        yield _node(instruction.origin or name, row, start, float(seconds), arguments)
        start += float(seconds)


def _kinds(
    instruction: Instruction, registers: Mapping[str, int], element: Element
) -> dict[str, Kinds]:
    """Types and shapes of an instruction's operands; block formats have their numbers' shape."""

    def kind(buffer: Buffer) -> dict[str, list[int]]:
        dtype = DTYPES.get(buffer.dtype)
        name = buffer.dtype if dtype is None else element(dtype)
        return {name: list(buffer.sizes_at(registers))}

    return {
        "input_type_shape": [kind(buffer) for buffer in instruction.inputs],
        "output_type_shape": [kind(buffer) for buffer in instruction.outputs],
    }
