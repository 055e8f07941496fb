"""The programs of a model's piece, forward and backward, and the memory of its operands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from halfbyte.core.backends import Executable, open_program
from halfbyte.core.buffer import Buffer, Size, maximum
from halfbyte.core.passes import plan_memory
from halfbyte.core.program import Program, capture
from halfbyte.quantize.tuning.gradients import divergence
from halfbyte.quantize.tuning.reverse import Reverse, reverse
from halfbyte.weights import F32Array, Tensor

HEAD_NUMBERS = 3 << 20  # logits that are computed at once, of whole rows

Record = Callable[[Program, Buffer], Buffer]


@dataclass(eq=False)
class Shape:
    """The programs of pieces that do the same, and the memory of their operands.

    Attributes
    ----------
    record : callable
        Records the piece into a program, from its input to its output.
    x : Buffer or None
        What it reads; None for token ids.
    slots : mapping of str to Buffer
        Operands that may change, by a tensor's name without the layer.
    """

    name: str
    record: Record
    x: Buffer
    slots: Mapping[str, Buffer]
    _executables: dict[tuple[str, int], Executable] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def array(self, slot: str) -> F32Array:
        """The memory of a slot, in the operand's shape."""
        value = self.slots[slot].value
        if isinstance(value, Tensor):
            return value.data.view(np.float32).reshape(value.shape)
        return np.asarray(value)

    def check(self) -> None:
        """Raise `UnsupportedError` if an operator has no gradient."""
        _ = self._reverse

    @property
    def most(self) -> int:
        """Rows that a run may have."""
        return maximum(self.x.shape[0])

    def load(self, values: Mapping[str, F32Array]) -> None:
        """Copy values into slots."""
        for slot, each in values.items():
            self.array(slot)[...] = each

    def run(self, x: Any, worker: int = 0) -> F32Array:
        """The piece's result, [n, ...]: a view that the worker's next run overwrites."""
        executable = self._executable("forward", worker)
        self._run(executable, {self._forward.inputs["x"]: x})
        return executable.array(executable.program.outputs["y"])[: len(x)]

    def gradients(
        self, x: F32Array, seed: F32Array, target: F32Array | None = None, worker: int = 0
    ) -> dict[str, F32Array]:
        """Gradients by slot and of "x", and of a head its loss, "y": views as `run`'s.

        `seed` is the gradient of the result; of a head with a `target`, of each row's divergence.
        """
        executable, made = self._executable("reverse", worker), self._reverse
        fed = {made.program.inputs["x"]: x, made.seeds["y"]: seed}
        if target is not None:
            fed[made.program.inputs["target"]] = target
        self._run(executable, fed)
        result = {name: executable.array(b) for name, b in made.gradients.items()}
        result["x"] = result["x"][: len(x)]
        if target is not None:
            result["y"] = executable.array(made.program.outputs["y"])[: len(x)]
        return result

    def losses(self, x: F32Array, target: F32Array, worker: int = 0) -> F32Array:
        """Of a head, each row's divergence [n, 1]: a view as `run`'s."""
        executable = self._executable("losses", worker)
        inputs = self._losses.inputs
        self._run(executable, {inputs["x"]: x, inputs["target"]: target})
        return executable.array(executable.program.outputs["y"])[: len(x)]

    def _executable(self, kind: str, worker: int) -> Executable:
        """A worker's own: runs of several take place at once, on the same slots."""
        with self._lock:
            if (kind, worker) not in self._executables:
                program = self._program(kind)
                self._executables[kind, worker] = open_program(plan_memory(program), threads=1)
            return self._executables[kind, worker]

    @staticmethod
    def _run(executable: Executable, inputs: Mapping[Buffer, Any]) -> None:
        n = len(next(iter(inputs.values())))
        for buffer, values in inputs.items():
            executable.array(buffer)[:n] = values
        sizes = {"n": n, "rows": n, "position": 0}
        executable.run({name: sizes[name] for name in executable.program.sizes})

    def _program(self, kind: str) -> Program:
        if kind == "reverse":
            return self._reverse.program
        return self._losses if kind == "losses" else self._forward

    @cached_property
    def _forward(self) -> Program:
        return self._recorded(lambda program, x: self.record(program, x))

    @cached_property
    def _losses(self) -> Program:
        return self._recorded(self._with_loss)

    @cached_property
    def _reverse(self) -> Reverse:
        program = self._recorded(self._with_loss if self.is_head else self.record)
        wanted = {"x": program.inputs["x"], **self.slots}
        return reverse(program, wanted, keep=("y",) if self.is_head else ())

    @property
    def is_head(self) -> bool:
        """Whether its result are logits, of which gradients are those of the divergence."""
        return self.name == "head"

    def _with_loss(self, program: Program, x: Buffer) -> Buffer:
        logits = self.record(program, x)
        loss: Buffer = divergence(logits, program.input("target", "f32", logits.shape))
        return loss

    def _recorded(self, record: Record) -> Program:
        with capture(self.name) as program:
            for dim in self.x.shape:
                if isinstance(dim, Size):
                    program.size(dim.name, dim.maximum)
            program.inputs["x"] = self.x
            program.output("y", record(program, self.x))
        _name_sizes(program)
        return program

    def close(self) -> None:
        """Free the memory of its programs."""
        for executable in self._executables.values():
            executable.close()
        self._executables.clear()


def _name_sizes(program: Program) -> None:
    """Register the named sizes of buffers and attributes, which each run is given."""
    for i in program.instructions:
        for dim in (*i.dims.values(), *i.attributes.values()):
            if isinstance(dim, Size):
                program.sizes.setdefault(dim.name, dim)
