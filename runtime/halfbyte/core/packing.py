"""Weights in the order that integer products like best; see `layouts.Packed`.

Mapped weights cost no memory of their own: the system drops their pages when it needs room, and
reads them again. Packed ones are this process's own, so they are packed only where there is room.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.backends.memory import ALIGNMENT, aligned
from halfbyte.core.backends.native import Kernels
from halfbyte.core.program import Buffer, Kind, Program
from halfbyte.errors import ProgramError
from halfbyte.formats.derived import DerivedTensor
from halfbyte.formats.mapped import is_mapped
from halfbyte.formats.model_file import ModelFile
from halfbyte.room import machine_bytes
from halfbyte.weights import Packed, Tensor

_SHARE = 0.5  # of the machine's memory that a model with packed weights may take
_SLICE = 4 << 20  # bytes packed before the file's pages are given back


def to_pack(program: Program, weights: str = "auto") -> list[Buffer]:
    """Weights that will be packed: matrices that integer products alone read.

    Parameters
    ----------
    program : Program
        After all passes.
    weights : {"auto", "packed", "mapped", "streamed"}
        "auto" packs where the whole plan takes at most half of this machine's memory.
    """
    others: set[Buffer] = set()
    for instruction in program.instructions:
        if instruction.operator not in (ops.matmul_int8, ops.gather):
            others.update(instruction.inputs)
    multiplied = {i.operands["w"] for i in program.instructions if i.operator is ops.matmul_int8}
    found = [b for b in program.buffers if b in multiplied and b not in others and _packable(b)]
    return found if weights == "packed" or (weights == "auto" and has_room(program)) else []


def has_room(program: Program) -> bool:
    """Whether the whole plan takes at most half of this machine's memory."""
    return sum(program.bytes_by_kind().values()) <= _SHARE * machine_bytes()


def _packable(buffer: Buffer) -> bool:
    return (
        buffer.kind is Kind.WEIGHT
        and isinstance(buffer.value, Tensor)
        and (layout := buffer.value.format.packed) is not None
        and buffer.value.shape[0] >= layout.GROUP
    )


def pack(buffers: list[Buffer], file: ModelFile, threads: int) -> None:
    """Pack these weights, in place where the file's bytes may be written.

    Buffers and `file.tensors` hold the packed tensors afterwards.
    """
    own = [b for b in buffers if not _tensor(b).data.flags.writeable]
    arena = aligned(sum(_padded(b.nbytes) for b in own))
    alone, shared, place = Kernels(), Kernels(threads=threads), 0
    for buffer in buffers:
        tensor = _tensor(buffer)
        layout = tensor.format.packed
        if layout is None:
            raise ProgramError(f"{buffer}: expected a format with a packed layout")
        data, kernels = tensor.data, alone
        if not data.flags.writeable:
            data, kernels = arena[place : place + data.nbytes], shared
            place += _padded(data.nbytes)
        for _ in _pack_slices(kernels, tensor, layout, data):
            file.forget()
            file.check()
        packed = Tensor(tensor.name, layout, tensor.shape, data)
        file.tensors[tensor.name] = buffer.value = packed
        buffer.dtype = layout.dtype
    shared.close()


def keep_vectors(program: Program, file: ModelFile) -> None:
    """Copy vectors out of the file: each would keep a page, or a huge one, of it resident."""
    _keep_constants(program)
    for buffer in program.buffers:
        if isinstance(buffer.value, Tensor) and len(buffer.shape) == 1:
            _keep(buffer, buffer.value, file)


def keep_all(program: Program, file: ModelFile) -> None:
    """Copy what is still mapped: the file is on a network, and may change where nobody sees it."""
    _keep_constants(program)
    for buffer in program.buffers:
        tensor = buffer.value
        if isinstance(tensor, DerivedTensor) or not isinstance(tensor, Tensor):
            continue
        if is_mapped(tensor.data):
            _keep(buffer, tensor, file)


def _keep_constants(program: Program) -> None:
    """Copy constants that are views of the file, such as a bias."""
    for buffer in program.buffers:
        if isinstance(buffer.value, np.ndarray) and is_mapped(buffer.value):
            buffer.value = buffer.value.copy()


def _keep(buffer: Buffer, tensor: Tensor, file: ModelFile) -> None:
    data = aligned(tensor.nbytes)
    data[...] = tensor.data
    file.tensors[tensor.name] = buffer.value = Tensor(
        tensor.name, tensor.format, tensor.shape, data
    )
    file.forget()
    file.check()


def _pack_slices(
    kernels: Kernels, tensor: Tensor, layout: type[Packed], data: npt.NDArray[np.uint8]
) -> Iterator[None]:
    """Pack a tensor into `data`, which may be its own; yields now and then."""
    rows, columns = tensor.shape
    size = layout.row_bytes(columns)
    scratch = np.empty(layout.GROUP * size, np.uint8)
    step = max(_SLICE // size // layout.GROUP, 1) * layout.GROUP
    for first in range(0, rows, step):
        part = slice(first * size, min(first + step, rows) * size)
        kernels.call(
            f"pack_{tensor.format.dtype}",
            y=data[part], scratch=scratch, w=tensor.data[part],
            k=columns, m=min(step, rows - first),
        )  # fmt: skip
        yield


def _tensor(buffer: Buffer) -> Tensor:
    if not isinstance(buffer.value, Tensor):
        raise ProgramError(f"{buffer}: expected a tensor of the file")
    return buffer.value


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
