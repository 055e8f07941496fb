"""Adds adapters to a program: products with changed matrices are followed by those of the changes.

``y = W x`` becomes ``y = W x; y += scale (factor B A x)``, in place. Beside quantized matrices, A
and B are int8 too, and products A x of one x are one instruction. Only `scale`, an input, says how
much of an adapter is used: nothing is packed again to switch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.aligned import padded, stream
from halfbyte.core.buffer import Buffer, Size, maximum
from halfbyte.core.instruction import Instruction
from halfbyte.core.ops.linear import rounded
from halfbyte.core.ops.panels import PANEL, pack_panels, panels
from halfbyte.core.program import ADAPTERS, SKIPPED, Program, resume
from halfbyte.errors import UnsupportedError
from halfbyte.formats.adapters import Adapter, LowRank
from halfbyte.weights import F32, Q8_0, BlockFormat, F32Array, Tensor, WeightFormat


class _Group(NamedTuple):
    """The changes, by an adapter, of products that read the same x; one if they are in floats."""

    adapter: int
    x: Buffer
    changes: list[tuple[int, LowRank]]  # by the numbers of the products' instructions
    int8: bool

    @property
    def name(self) -> str:
        """For tensors."""
        return f"{ADAPTERS}.{self.adapter}.{self.changes[0][0]}.{self.changes[0][1].source}"

    @property
    def offsets(self) -> dict[int, int]:
        """The first row of each A in the stack of all, by its id: parts of a matrix share one."""
        offsets, rows = {}, 0
        for _, change in self.changes:
            if id(change.a) not in offsets:
                offsets[id(change.a)] = rows
                rows += len(change.a)
        return offsets

    def stacked(self, room: _Room) -> Tensor:
        """All A, one above the other."""
        a = np.concatenate(list({id(c.a): c.a for _, c in self.changes}.values()))
        if not self.int8:
            return _tensor(self.name, a, F32)
        return Tensor(self.name, Q8_0, a.shape, room.keep(Q8_0.encode(a).reshape(-1), "u1"))

    def nbytes(self) -> Iterator[int]:
        """Sizes of the int8 matrices, and of factors."""
        for a in {id(c.a): c.a for _, c in self.changes}.values():
            yield len(a) * Q8_0.row_bytes(a.shape[1])
        for _, change in self.changes:
            count = panels(len(change.b))
            yield from (4 * count, PANEL * change.b.shape[1] * count)


class _Room:
    """Memory for all int8 A and B, and factors, in the order in which they are read.

    Each is a few kilobytes. Side by side in huge pages they are one stream, which kernels and
    hardware prefetch beyond the end of a matrix.
    """

    def __init__(self, sizes: Iterable[int]) -> None:
        self._free = stream(sum(map(padded, sizes)))

    def keep(self, values: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A copy of the next values."""
        size = values.size * np.dtype(dtype).itemsize
        kept = self._free[:size].view(dtype).reshape(values.shape)
        self._free = self._free[padded(size) :]
        kept[...] = values
        return kept


def _tensor(name: str, values: F32Array, kind: type[WeightFormat]) -> Tensor:
    return Tensor(name, kind, values.shape, kind.encode(np.ascontiguousarray(values)).reshape(-1))


def add_adapters(program: Program, adapters: Sequence[Adapter]) -> Program:
    """A program, before any other pass, with adapters.

    Raises
    ------
    UnsupportedError
        No product uses a matrix that an adapter changes; the message names it.
    """
    before: dict[int, list[_Group]] = {}
    after: dict[int, list[tuple[_Group, LowRank, Buffer]]] = {}
    readers: dict[Buffer, list[int]] = {}
    for number, instruction in enumerate(program.instructions):
        for buffer in instruction.inputs:
            readers.setdefault(buffer.root, []).append(number)
    for index, adapter in enumerate(adapters):
        for group in _groups(program, index, adapter):
            before.setdefault(group.changes[0][0], []).append(group)
            for place, change, y in _places(program.instructions, group, readers):
                after.setdefault(place, []).append((group, change, y))
    rewritten = program.rewritten([])
    rank = max(len(change.a) for adapter in adapters for change in adapter.changes.values())
    scales = rewritten.input(ADAPTERS, "f32", (len(adapters), rank))
    products: dict[str, Buffer] = {}
    groups = (group for first in before.values() for group in first if group.int8)
    room = _Room(size for group in groups for size in group.nbytes())
    with resume(rewritten):
        for number, instruction in enumerate(program.instructions):
            for group in before.get(number, ()):
                products[group.name] = ops.matmul(group.x, rewritten.weight(group.stacked(room)))
            rewritten.append(instruction)
            for group, change, y in after.get(number, ()):
                scale = scales.part(4 * rank * group.adapter, (1, len(change.a)))
                _add(rewritten, group, change, products[group.name], scale, y, room)
    return rewritten


def _add(
    program: Program, group: _Group, change: LowRank, t: Buffer, scale: Buffer, y: Buffer,
    room: _Room,
) -> None:  # fmt: skip
    """Record y += scale (factor B t)."""
    if not group.int8:
        b = program.weight(_tensor(f"{group.name}.b", change.b * np.float32(change.factor), F32))
        ops.add(y, ops.matmul(ops.mul(t, scale), b))  # which are fused
        program.change_last((y,))
        return
    packed = pack_panels(change.b)
    integers, d = rounded(packed.reshape(len(packed), -1))
    factors = program.constant(f"{group.name}.d", room.keep(d * np.float32(change.factor), "f4"))
    b = program.constant(f"{group.name}.b", room.keep(integers.reshape(packed.shape), "i1"))
    first = group.offsets[id(change.a)]
    ops.add_low_rank(y, t, b, factors, scale.part(0, (1,)), offset=first)


def _groups(program: Program, index: int, adapter: Adapter) -> list[_Group]:
    """The changes of an adapter, by the input of the products that they change."""
    groups: dict[Buffer, list[tuple[int, LowRank]]] = {}
    unused, floats = set(adapter.changes), set()
    for number, instruction in enumerate(program.instructions):
        w = instruction.operands["w"].value if instruction.operator is ops.matmul else None
        change = adapter.of(w) if isinstance(w, Tensor) else None
        if change is None or not isinstance(w, Tensor):
            continue
        x = instruction.operands["x"]
        groups.setdefault(x, []).append((number, change))
        unused.discard((w.whole or w).name)
        if not issubclass(w.format, BlockFormat) or not Q8_0.fits(change.a):
            floats.add(x)
    if unused:
        name = min(unused)
        raise UnsupportedError(
            f"{adapter.path}: tensor {adapter.changes[name].source!r}: expected a matrix that "
            f"activations are multiplied with, found {name!r} of {program.name}"
        )
    return [
        _Group(index, x, part, x not in floats)
        for x, changes in groups.items()
        for part in ([[change] for change in changes] if x in floats else [changes])
    ]


def _places(
    instructions: Sequence[Instruction], group: _Group, readers: Mapping[Buffer, list[int]]
) -> Iterator[tuple[int, LowRank, Buffer]]:
    """After which instruction each change is added, and to which of its results.

    That is after the products of the whole group, which run at the same time, unless one is used
    before. What is added to a product may be added to a sum of it: it is fused with the product.
    """
    lasts = []
    for number, _ in group.changes:
        while True:
            y = instructions[number].outputs[0]
            users = readers.get(y, [])
            if len(users) != 1 or instructions[users[0]].operator is not ops.add:
                break
            number = users[0]
        lasts.append((number, min(users, default=len(instructions))))
    end = max(last for last, _ in lasts)
    for (_, change), (last, used) in zip(group.changes, lasts, strict=True):
        yield end if end < used else last, change, instructions[last].outputs[0]


def skip_unused(program: Program) -> Program:
    """Give an adapter's instructions sizes of their own, which are 0 in runs that do not use it."""
    scales = program.inputs[ADAPTERS]
    size = scales.nbytes // maximum(scales.shape[0])
    owners: dict[Buffer, int] = {}  # adapters by the results between A and B
    for instruction in program.instructions:
        operands = instruction.operands
        low_rank = instruction.operator is ops.add_low_rank
        scale = operands.get("scale" if low_rank else "y")
        if scale is not None and scale.root is scales:
            between = (operands["t"],) if low_rank else (operands["x"], *instruction.outputs)
            owners |= dict.fromkeys(between, scale.offset // size)
    rewritten = program.rewritten([])
    with resume(rewritten):
        for instruction in program.instructions:
            operands = instruction.operands
            owner = next((owners[b] for b in operands.values() if b in owners), None)
            if owner is None:
                rewritten.append(instruction)
                continue
            views = {b: _view(rewritten, b, owner) for b in operands.values()}
            given = (buffer and views[buffer] for buffer in instruction.arguments)
            instruction.operator(*given, **instruction.attributes)
            rewritten.change_last(tuple(views[buffer] for buffer in instruction.outputs))
    return rewritten


def _view(program: Program, buffer: Buffer, adapter: int) -> Buffer:
    """A buffer whose number of rows, if that is a size, is the adapter's."""
    rows, *columns = buffer.shape
    if not isinstance(rows, Size):
        return buffer
    size = program.size(f"{rows.name}{SKIPPED}{adapter}", rows.maximum)
    return buffer.view((size, *columns))
