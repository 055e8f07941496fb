"""Stages: the parts of a graph that run as one program each, and the lifetimes of values."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from halfbyte.core.backends import Executable
from halfbyte.core.backends.memory import at_sizes
from halfbyte.core.buffer import Buffer
from halfbyte.core.dtypes import dtype_key
from halfbyte.core.program import Program
from halfbyte.onnx.evaluate import used_names
from halfbyte.onnx.files.model import Node
from halfbyte.onnx.size_arrays import now
from halfbyte.onnx.sizes import Sizes
from halfbyte.onnx.values import Unknown, Value

Opener = Callable[[Program], Executable]  # binds a program to a backend


class Observer(Protocol):
    """Is notified of everything that ran; `start` is a time of `time.perf_counter`."""

    def program(self, program: Program, start: float, seconds: np.ndarray[Any, Any]) -> None:
        """A program ran; `seconds` are the times of its instructions."""

    def node(
        self, node: Node, start: float, seconds: float, inputs: list[Any], outputs: list[Any]
    ) -> None:
        """A node between programs ran, with these values of its inputs and outputs."""


class Inside:
    """What runs inside a node: an observer is notified of it, and it is added up here.

    Attributes
    ----------
    seconds : float
        Of everything that ran.
    programs : dict
        Its keys are the programs that ran, in the order of their first runs.
    """

    def __init__(self, observer: Observer | None) -> None:
        self._observer = observer
        self.seconds = 0.0
        self.programs: dict[Program, None] = {}

    def program(self, program: Program, start: float, seconds: np.ndarray[Any, Any]) -> None:
        """A program ran."""
        self.seconds += float(seconds.sum())
        self.programs[program] = None
        if self._observer is not None:
            self._observer.program(program, start, seconds)

    def node(
        self, node: Node, start: float, seconds: float, inputs: list[Any], outputs: list[Any]
    ) -> None:
        """A node ran between programs."""
        self.seconds += seconds
        if self._observer is not None:
            self._observer.node(node, start, seconds, inputs, outputs)


@dataclass(eq=False)
class Stage:
    """Nodes [first, last) as a program for one set of shapes; its first run allocates its memory.

    `feeds` are copied into the program and `results` are read from it; `known` are constants that
    the capture computed. `dead` are values that nothing needs after node `last`. With `sizes`, it
    is for all sets of shapes that fulfil its conditions, and its program has named sizes.
    """

    first: int
    last: int
    program: Program | None
    opener: Opener
    feeds: dict[str, Buffer]
    results: dict[str, Buffer]
    known: dict[str, Any]
    dead: list[str]
    sizes: Sizes | None = None
    _copied: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _registers: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _views: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def _executable(self) -> Executable | None:
        return None if self.program is None else self.opener(self.program)

    def run(self, values: dict[str, Any], observer: Observer | None) -> None:
        """Run the program and put its results into `values`, as views of its memory."""
        executable = self._executable
        if executable is None:
            return
        if self._direct is not None:
            self._direct.restore()
        registers = {} if self.sizes is None else self.sizes.values
        if registers != self._registers or not self._copied:
            self._resize(executable, registers)
        for name, memory in self._copied.items():
            memory[...] = values[name]
        if observer is None:
            executable.run(registers)
        else:
            start = time.perf_counter()
            observer.program(executable.program, start, executable.profile(registers))
        if self._views:
            values.update(self._views)
            return
        views = {
            name: _view(executable, buffer, registers) for name, buffer in self.results.items()
        }
        if all(isinstance(view, np.ndarray) for view in views.values()):
            self._views = views  # the same memory in each run
        values.update((name, np.asarray(view)) for name, view in views.items())

    def can_repeat(self, names: Sequence[str]) -> bool:
        """Whether these values are views of its memory, after a run without an observer."""
        return all(name in self._views for name in names)

    def repeated(
        self, feeds: Mapping[str, Any], names: Sequence[str]
    ) -> list[np.ndarray[Any, Any]]:
        """The results of these names, once each, of a run with feeds of the same types and shapes.

        The sizes are those of an earlier run.
        """
        executable = self._executable
        if executable is None:
            return []
        registers = {} if self.sizes is None else self.sizes.values
        if registers != self._registers:
            self._resize(executable, registers)
        arrays = self._callers(feeds, names) if self._large else {}
        for name, memory in self._copied.items():
            if name not in arrays:
                memory[...] = feeds[name]
        if arrays:
            self._run_on(executable, {self._large[name]: a for name, a in arrays.items()})
        else:
            executable.run(registers)
        if not self._views:
            self._views = {
                name: _view(executable, buffer, registers) for name, buffer in self.results.items()
            }
        return [arrays[name] if name in arrays else self._views[name].copy() for name in names]

    def _run_on(
        self, executable: Executable, arrays: Mapping[Buffer, np.ndarray[Any, Any]]
    ) -> None:
        """Run once with these arrays as the memory of buffers."""
        try:
            self._direct.place(arrays)
            executable.run({})
        finally:
            self._direct.restore()

    @cached_property
    def _direct(self) -> Any:
        """What can have its memory elsewhere in a run; None where nothing can."""
        return getattr(self._executable, "direct", None)

    @cached_property
    def _large(self) -> dict[str, Buffer]:
        """Feeds and results, apart from each other, whose memory may be the caller's in a run."""
        direct, executable = self._direct, self._executable
        if direct is None or executable is None or self.sizes is not None:
            return {}
        operands = [(n, b.root) for n, b in (*self.feeds.items(), *self.results.items())]
        users = Counter(root for _, root in operands)
        named = Counter(name for name, _ in operands)
        held = self._copied | self._views
        return {
            name: root
            for name, root in operands
            if users[root] == named[name] == 1 and direct.has(root)
            and name in held and held[name].nbytes == executable.array(root).nbytes
        }  # fmt: skip

    def _callers(
        self, feeds: Mapping[str, Any], names: Sequence[str]
    ) -> dict[str, np.ndarray[Any, Any]]:
        """The caller's arrays for a run: feeds, as they are, and new ones for results."""
        arrays = {}
        for name in self._large:
            if name in self._copied:
                feed = feeds[name]
                if feed.dtype == self._copied[name].dtype and _plain(feed):
                    arrays[name] = feed
            elif name in names:
                arrays[name] = np.empty_like(self._views[name])
        return arrays

    def _resize(self, executable: Executable, registers: dict[str, int]) -> None:
        """Prepare for a run with these sizes, and for all that follow with the same ones."""
        self._copied, self._views = {}, {}
        for buffer, numbers in () if self.sizes is None else self.sizes.constants.items():
            at_sizes(executable.array(buffer), buffer, registers)[...] = numbers.now()
        self._registers = dict(registers)
        self._copied = {
            name: at_sizes(executable.array(buffer), buffer, registers)
            for name, buffer in self.feeds.items()
        }

    def constants(self) -> dict[str, Any]:
        """`known`, for the sizes of the last run."""
        return {name: now(value) for name, value in self.known.items()}

    def close(self) -> None:
        """Stop its threads and free its memory."""
        self._views, self._copied = {}, {}
        if (executable := self.__dict__.pop("_executable", None)) is not None:
            executable.close()


def _plain(array: np.ndarray[Any, Any]) -> bool:
    """Whether kernels can read it where it is."""
    return array.flags.c_contiguous and array.flags.aligned


def _view(executable: Executable, buffer: Buffer, registers: Mapping[str, int]) -> Any:
    """The numbers of a result, in the program's memory, which may be apart from NumPy's."""
    dtype, shape = buffer.held_as(registers)
    flat = executable.array(buffer.root).reshape(-1).view(dtype)
    return flat[: math.prod(shape)].reshape(shape)


class Scope(dict[str, Any]):
    """Values under capture; those of earlier stages become inputs when they are first read."""

    def __init__(
        self,
        program: Program,
        values: Mapping[str, Any],
        known: Mapping[str, Any],
        named: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        super().__init__({"": None})
        self._program, self._values, self._known = program, values, known
        self._named = named or {}  # shapes of values, some sizes of which differ between calls

    def __missing__(self, name: str) -> Any:
        self[name] = self._known[name] if name not in self._values else self._input(name)
        return self[name]

    def _input(self, name: str) -> Value | Unknown:
        array = self._values[name]
        key = dtype_key(array.dtype) if isinstance(array, np.ndarray) else None
        if key is None:
            return Unknown()
        shape = self._named.get(name, array.shape)
        return Value(key, shape, plain=self._program.input(name, key, shape))


class Lifetimes:
    """The nodes between which each value of a graph is needed; outputs are until the end."""

    def __init__(self, nodes: Sequence[Node], outputs: Sequence[str]) -> None:
        self._first = {name: i for i, node in enumerate(nodes) for name in node.outputs}
        self._last = {name: i for i, node in enumerate(nodes) for name in used_names(node)}
        self._last.update(dict.fromkeys(outputs, len(nodes)))

    def needed(self, name: str, at: int) -> bool:
        """Whether a value from before node `at` is needed by that node or a later one."""
        return self._first.get(name, -1) < at <= self._last.get(name, -1)
