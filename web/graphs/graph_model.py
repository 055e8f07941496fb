"""One ONNX model in the page, with its running times and memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends import Executable
from halfbyte.core.backends.libraries import why_one_thread
from halfbyte.core.buffer import Buffer, Kind
from halfbyte.errors import HalfbyteError
from halfbyte.formats.mapped import is_apart, size_of
from halfbyte.onnx.session import InferenceSession, SessionOptions
from halfbyte.onnx.stages import Opener
from halfbyte.text.footprint import resident_bytes

_NAMELESS = "model.onnx"  # what a session calls a model that has no path


@dataclass
class Clock:
    """Seconds spent in kernels since the last reset, and the backend that ran them."""

    kernels: float = 0.0
    backend: str = ""
    threads: int = 1


class Measured:
    """An `Executable` that adds its kernels' time to a clock.

    Instructions that run in NumPy are not counted.
    """

    def __init__(self, inner: Executable, clock: Clock) -> None:
        self._inner, self._clock = inner, clock
        self.program, self.backend, self.threads = inner.program, inner.backend, inner.threads
        instructions = inner.program.instructions
        numpy = inner.backend == "numpy"
        self._kernels = np.array([not (i.operator.host or numpy) for i in instructions], bool)
        clock.backend, clock.threads = inner.backend, inner.threads

    def array(self, buffer: Buffer) -> npt.NDArray[Any]:
        """The memory of a buffer."""
        return self._inner.array(buffer)

    def run(self, registers: dict[str, int]) -> None:
        """Execute all instructions."""
        self.profile(registers)

    def profile(self, registers: dict[str, int]) -> npt.NDArray[np.float64]:
        """Run, and return the seconds spent in each instruction."""
        seconds = self._inner.profile(registers)
        self._clock.kernels += float(seconds[self._kernels].sum())
        return seconds

    def step(self, number: int, registers: dict[str, int]) -> None:
        """Execute only one instruction."""
        self._inner.step(number, registers)

    def close(self) -> None:
        """Stop its threads."""
        self._inner.close()


class MeasuredSession(InferenceSession):
    """A session whose programs add their kernels' time to its clock."""

    def __init__(self, data: Any, options: SessionOptions) -> None:
        self.clock = Clock()
        super().__init__(data, options)

    def _opener(self) -> Opener:
        opener, clock = super()._opener(), self.clock
        return lambda program: Measured(opener(program), clock)


class GraphModel:
    """A model in the page.

    Parameters
    ----------
    name : str
        The file's name, for messages.
    data : bytes-like
        The file's content, which the model keeps; it may be in memory apart.
    backend : str
        "native" or "numpy".

    Raises
    ------
    HalfbyteError
        The data is not an ONNX model, or uses something that halfbyte does not support.
    """

    def __init__(self, name: str, data: Any, backend: str = "native") -> None:
        self.name, self.size, self._apart = name, size_of(data), is_apart(data)
        options = SessionOptions()
        options.backend = backend
        self.session: MeasuredSession = self._named(lambda: MeasuredSession(data, options))
        self.inputs = self.session.get_inputs()
        self.outputs = self.session.get_outputs()

    def run(self, feeds: Mapping[str, Any], names: list[str] | None = None) -> list[Any]:
        """Outputs; errors name the file."""
        return self._named(lambda: self.session.run(names, feeds))  # type: ignore[no-any-return]

    def timed(self, feeds: Mapping[str, Any]) -> tuple[list[Any], float, float]:
        """Outputs of one run, its seconds, and the seconds in kernels."""
        clock, start = self.session.clock, time.perf_counter()
        clock.kernels = 0.0
        outputs = self.run(feeds)
        return outputs, time.perf_counter() - start, clock.kernels

    def facts(self) -> dict[str, Any]:
        """The facts about the model and the machine that the page shows."""
        heap = resident_bytes()
        programs = self.session.programs()
        kinds = (Kind.SCRATCH, Kind.INPUT, Kind.OUTPUT)
        sums = [program.bytes_by_kind() for program in programs]
        activations = sum(by_kind[kind] for by_kind in sums for kind in kinds)
        rest = heap if self._apart else max(heap - self.size - activations, 0)
        return {
            "name": self.name,
            "bytes": self.size,
            "backend": self.session.clock.backend if programs else "",
            "threads": self.session.clock.threads,
            "alone": why_one_thread(self.session.clock),
            "memory": {
                "the model's file": self.size,
                "activations": activations,
                "Python and the rest": rest,
            },
        }

    def close(self) -> None:
        """Close the model's programs."""
        self.session.close()

    def _named(self, work: Any) -> Any:
        try:
            return work()
        except HalfbyteError as error:
            text = str(error)
            if text.startswith(_NAMELESS):
                text = self.name + text.removeprefix(_NAMELESS)
            raise HalfbyteError(text) from error
