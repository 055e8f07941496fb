"""Instructions of a program, and what they know of their operators."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from halfbyte.core.buffer import Buffer, Dim, Kind, Size, at


@dataclass(frozen=True)
class Operand:
    """One entry of an operator's signature."""

    name: str
    dtype: str  # "f32", "i8" ... or "*": a weight in any format, a cache or an image of any type
    dims: tuple[str, ...]
    optional: bool = False


class Operation(Protocol):
    """An operator as instructions use it; see :class:`halfbyte.core.ops.Operator`."""

    @property
    def name(self) -> str: ...
    @property
    def onnx(self) -> str: ...
    @property
    def inputs(self) -> tuple[Operand, ...]: ...
    @property
    def outputs(self) -> tuple[Operand, ...]: ...
    @property
    def meaning(self) -> Callable[..., Any]: ...
    @property
    def reads(self) -> Mapping[str, Callable[[Mapping[str, int]], int]]: ...
    @property
    def operations(self) -> Callable[[Mapping[str, int]], int] | None: ...
    @property
    def rows(self) -> str: ...
    @property
    def steps(self) -> Mapping[str, str]: ...
    @property
    def product(self) -> bool: ...
    @property
    def kind(self) -> Callable[[Mapping[str, Any]], str] | None: ...
    @property
    def host(self) -> bool: ...
    @property
    def fills(self) -> bool: ...
    @property
    def holds(self) -> tuple[npt.NDArray[Any], ...]: ...
    def __call__(self, *operands: Any, **attributes: Any) -> Any: ...
    def check(self, instruction: Instruction) -> None: ...
    def kernel(self, instruction: Instruction) -> str: ...
    def called(self, instruction: Instruction) -> tuple[str, int] | None: ...


@dataclass(frozen=True, eq=False)
class Instruction:
    """One operator applied to buffers. `dims` are the signature's dimensions and attributes.

    `given` names the inputs; by default they are the signature's first. `origin` is the name of the
    graph's node from which it was recorded, or of the node's first output.
    """

    operator: Operation
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    attributes: Mapping[str, Any]
    dims: Mapping[str, Dim]
    given: tuple[str, ...] = ()
    origin: str = ""

    checked = False  # whether its operands were found to fit its operator

    def mark_checked(self) -> None:
        """Its operands fit its operator: neither changes later."""
        self.__dict__["checked"] = True

    @cached_property
    def operands(self) -> Mapping[str, Buffer]:
        """All buffers by their name in the signature."""
        names = self.given or tuple(o.name for o in self.operator.inputs)
        outputs = (o.name for o in self.operator.outputs)
        return {
            **dict(zip(names, self.inputs, strict=False)),
            **dict(zip(outputs, self.outputs, strict=True)),
        }

    @property
    def arguments(self) -> tuple[Buffer | None, ...]:
        """The inputs in the order of the signature, None for those left out."""
        names = self.given or tuple(o.name for o in self.operator.inputs)
        operands = dict(zip(names, self.inputs, strict=False))
        return tuple(operands.get(o.name) for o in self.operator.inputs)

    def results(self, arguments: Collection[Any], registers: Mapping[str, int]) -> tuple[Any, ...]:
        """The operator's results for values of its `arguments`."""
        attributes = self.attributes and {
            k: at(v, registers) if isinstance(v, Size) else v for k, v in self.attributes.items()
        }
        values = self.operator.meaning(*arguments, **attributes)
        return values if isinstance(values, tuple) else (values,)

    def bytes_moved(
        self, registers: Mapping[str, int], kinds: Collection[Kind] = frozenset(Kind)
    ) -> int:
        """Bytes read and written at given sizes: every operand once, and only touched rows.

        Only buffers of these `kinds` count.
        """
        total, dims = 0, self._dims(registers)
        for name, buffer in self.operands.items():
            if buffer.root.kind not in kinds:
                continue
            touched = self.operator.reads.get(name)
            total += buffer.bytes_at(registers, None if touched is None else touched(dims))
        return total

    def _dims(self, registers: Mapping[str, int]) -> dict[str, int]:
        return {name: at(dim, registers) for name, dim in self.dims.items()}

    def operations(self, registers: Mapping[str, int]) -> int:
        """Arithmetic operations at given sizes (a multiply and an add are two)."""
        if self.operator.operations is not None:
            return self.operator.operations(self._dims(registers))
        if not self.outputs or self.outputs[0].kind is Kind.WINDOW:
            return 0
        shape = self.outputs[0].shape
        return int(np.prod([at(d, registers) for d in shape], dtype=np.int64))
