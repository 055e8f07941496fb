"""Traces of a session: a profile of what ran when, which Chrome and Perfetto show."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.chrome_trace import chrome_trace
from halfbyte.core.profiling import Call, Profile
from halfbyte.core.program import Program
from halfbyte.onnx.files.model import Node
from halfbyte.onnx.session.metadata import element_name
from halfbyte.outputs import write_text


class Trace:
    """An `Observer` that records runs in a profile.

    Attributes
    ----------
    profile : Profile
    start_ns : int
        The time of its creation, by `time.time_ns`.
    """

    def __init__(self) -> None:
        self.profile = Profile(keep_events=True)
        self.start_ns = time.time_ns()
        self._start = time.perf_counter()

    def program(self, program: Program, start: float, seconds: npt.NDArray[np.float64]) -> None:
        """Record a program, whose instructions ran one after the other."""
        self.profile.add(program, {}, seconds, start)

    def node(
        self, node: Node, start: float, seconds: float, inputs: list[Any], outputs: list[Any]
    ) -> None:
        """Record a node that ran between programs."""
        moved = sum(v.nbytes for v in (*inputs, *outputs) if isinstance(v, np.ndarray))
        kinds = ([_kind(v) for v in values] for values in (inputs, outputs))
        self.profile.add_call(Call(node.title, node.op_type, start, seconds, moved, *kinds))

    def span(self, name: str, start: float) -> None:
        """Record anything else that began at `start` and ends now, such as loading or a run."""
        self.profile.add_span(name, start)

    def events(self, backend: str, threads: int) -> list[dict[str, Any]]:
        """The events of the trace; see `chrome_trace`."""
        return chrome_trace(
            self.profile, backend=backend, threads=threads, start=self._start, element=element_name
        )

    def write(self, prefix: str, backend: str, threads: int) -> str:
        """Write the trace into a new file; returns its name.

        Raises
        ------
        OutputError
            The file cannot be written.
        """
        now = time.time_ns() // 1_000_000
        while (path := _name(prefix, now)).exists():
            now += 1
        write_text(path, json.dumps(self.events(backend, threads)))
        return str(path)


def _name(prefix: str, now: int) -> Path:
    """The file name of a trace; `now` is in milliseconds."""
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now // 1000))
    return Path(f"{prefix}_{stamp}_{now % 1000:03d}.json")


def _kind(value: Any) -> dict[str, list[int]]:
    if isinstance(value, np.ndarray):
        return {element_name(value.dtype): list(value.shape)}
    return {type(value).__name__: []}
