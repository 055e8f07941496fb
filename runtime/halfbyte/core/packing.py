"""Repacks weights into the order of integer products; see `weights.packed.Packed`.

Mapped weights need no memory of their own, since the system can drop their pages and read them
again. Packed weights are private memory, so weights are packed only if there is room for them.
Packing returns another program: neither the plan nor the file is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np

from halfbyte.core import ops
from halfbyte.core.aligned import aligned, padded
from halfbyte.core.backends.libraries import library_for
from halfbyte.core.backends.native import Kernels
from halfbyte.core.buffer import Buffer, Kind
from halfbyte.core.program import Program
from halfbyte.errors import ProgramError
from halfbyte.formats.derived import ConvertedTensor, DerivedTensor
from halfbyte.formats.mapped import is_apart, is_mapped
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.reading import Rows
from halfbyte.room import machine_bytes
from halfbyte.weights import U8, Layout, Tensor
from halfbyte.weights.grids import Grid

_PRODUCTS = (ops.matmul_int8, ops.matmul_experts_int8)
_SHARE = 0.5  # of the machine's memory, for a model with packed weights
_SLICE = 4 << 20  # bytes packed or copied before the file's pages are given back


def to_pack(program: Program, weights: str = "auto") -> list[Buffer]:
    """Weights to pack: matrices that only integer products read.

    Parameters
    ----------
    program : Program
        After all passes.
    weights : {"auto", "packed", "mapped", "streamed"}
        "auto" packs if that takes no memory, since the file's bytes are the model's own, or if the
        whole plan takes at most half of this machine's memory. "streamed" packs those that are
        held nevertheless, but no experts.
    """
    others: set[Buffer] = set()
    for instruction in program.instructions:
        if instruction.operator not in (*_PRODUCTS, ops.gather):
            others.update(instruction.inputs)
    multiplied = {i.operands["w"] for i in program.instructions if i.operator in _PRODUCTS}
    matrices = [b for b in program.buffers if b in multiplied and b not in others and _packable(b)]
    if weights == "streamed":
        return [b for b in matrices if len(b.shape) == 2]
    if weights == "packed" or (weights == "auto" and (_in_place(matrices) or has_room(program))):
        return matrices
    return []


def _in_place(matrices: Iterable[Buffer]) -> bool:
    return all(buffer.value.owned for buffer in matrices if isinstance(buffer.value, Tensor))


def has_room(program: Program) -> bool:
    """Whether the whole plan takes at most half of this machine's memory."""
    return sum(program.bytes_by_kind().values()) <= _SHARE * machine_bytes()


def _packable(buffer: Buffer) -> bool:
    """Whether a matrix has a whole group of rows; matrices of a stack may not share a group."""
    if buffer.kind is not Kind.WEIGHT or not isinstance(buffer.value, Tensor):
        return False
    layout, (*stacked, rows, _) = buffer.value.format.packed, buffer.value.shape
    return layout is not None and rows >= layout.GROUP and not (stacked and rows % layout.GROUP)


def pack(program: Program, buffers: Iterable[Buffer], file: ModelFile, threads: int) -> Program:
    """The program with these weights packed.

    If the file's bytes are in memory, as in a browser, they are packed in place, since a copy might
    not fit. The tensors give them away, and cannot be used afterwards.
    """
    tensors = {buffer: _tensor(buffer) for buffer in buffers}
    library = library_for(threads, program)
    single, shared = Kernels(library=library), Kernels(threads=threads, library=library)
    own: dict[Buffer, U8 | None] = {}
    for buffer, tensor in tensors.items():
        own[buffer] = _taken(tensor, shared)
        file.forget()  # what it was converted from
    arena = aligned(sum(padded(tensors[b].nbytes) for b, data in own.items() if data is None))
    scratch = library.memory.aligned(max(map(_group_bytes, tensors.values()), default=0))
    place = 0
    packed = {}
    for buffer, tensor in tensors.items():
        layout = tensor.format.packed
        if layout is None:
            raise ProgramError(f"{buffer}: expected a format with a packed layout")
        if (mine := own[buffer]) is not None:
            source = data = mine
        else:
            source, data = tensor.data, arena[place : place + tensor.nbytes]
            place += padded(tensor.nbytes)
        kernels = single if source is data else shared
        for _ in _pack_slices(kernels, tensor, layout, source, data, scratch):
            file.forget()
            file.check()
        value = Tensor(tensor.name, layout, tensor.shape, data, tensor.whole)
        packed[buffer] = replace(buffer, dtype=layout.dtype, value=value)
    shared.close()
    return program.replaced(packed)


def pack_rows(rows: Rows, data: U8) -> None:
    """What :func:`halfbyte.formats.reading.pack_rows` does, in C."""
    if rows.layout is not None:
        tensor, kernels = rows.tensor, _one_thread()
        size = rows.layout.GROUP * rows.layout.row_bytes(tensor.columns)
        kernels.call(
            f"pack_{tensor.format.dtype}",
            y=data, scratch=np.empty(size, np.uint8), w=data, k=tensor.columns, m=rows.size,
        )  # fmt: skip


@cache
def _one_thread() -> Kernels:
    return Kernels()


def _taken(tensor: Tensor, kernels: Kernels) -> U8 | None:
    """A tensor's bytes where kernels may overwrite them; None if they have to be copied."""
    memory = kernels.memory
    by_kernel = kernels.has("convert_grids")  # WebAssembly leaves it out
    if by_kernel and isinstance(tensor, ConvertedTensor) and issubclass(tensor.source.format, Grid):
        return _converted(tensor.source, tensor.source.format, tensor.nbytes, kernels)
    if memory.apart and not is_apart(tensor.data):
        data = memory.aligned(tensor.nbytes)
        data[...] = tensor.data
        return data
    return tensor.release() if tensor.owned else None


def _converted(source: Tensor, format_: type[Grid], nbytes: int, kernels: Kernels) -> U8:
    """What `format_.converted` makes of a tensor, by the kernel that does the same."""
    reach, tables = kernels.memory.reach, format_.conversion()
    data = kernels.memory.aligned(nbytes)
    blocks = source.columns // format_.block
    step = max(_SLICE // (blocks * format_.block_bytes), 1)
    size = nbytes // source.row_count
    grid, fields = reach(tables.grid), reach(tables.fields)
    for first in range(0, source.row_count, step):
        rows = np.asarray(source.take(first, step))
        kernels.call(
            "convert_grids",
            y=data[first * size : (first + len(rows)) * size], w=reach(rows.reshape(-1)),
            grid=grid, fields=fields, n=len(rows) * blocks, bytes=format_.block_bytes,
            digits=tables.digits, kind=tables.kind, bits=tables.bits,
        )  # fmt: skip
    return data


def to_copy(
    program: Program, to_pack: Collection[Buffer] = (), *, streams: bool = False
) -> list[Buffer]:
    """Tensors to copy out of the file, since its pages are not to stay in memory.

    Matrices that are computed from the file's, unless they are packed. Where a program packs or
    `streams`, also vectors, each of which would keep a page, or a huge page, of the file resident;
    where it streams, also the matrices that it holds.
    """
    packed = set(to_pack)
    tensors = [b for b in program.buffers if isinstance(b.value, Tensor) and b not in packed]
    sizes = (1, 2) if streams else (1,) if packed else ()
    return [b for b in tensors if len(b.shape) in sizes or _computed(b.value)]


def _computed(value: object) -> bool:
    """Whether a weight's bytes are made from the file's; those of another layout count apart."""
    return isinstance(value, DerivedTensor) and not isinstance(value, ConvertedTensor)


def copy(program: Program, buffers: Iterable[Buffer], file: ModelFile) -> Program:
    """The program with copies of these tensors, and of constants that are views of the file."""
    kept = {
        b: replace(b, value=b.value.copy())
        for b in program.buffers
        if isinstance(b.value, np.ndarray) and is_mapped(b.value)
    }
    for buffer in buffers:
        tensor = _tensor(buffer)
        data = aligned(tensor.nbytes)
        rows = tensor.format.rows(data, tensor.columns)
        step = max(1, _SLICE // rows.shape[1])
        for first in range(0, tensor.row_count, step):  # a whole one would be resident twice
            rows[first : first + step] = tensor.take(first, step)
            file.forget()
        file.check()
        value = Tensor(tensor.name, tensor.format, tensor.shape, data, tensor.whole)
        kept[buffer] = replace(buffer, value=value)
    return program.replaced(kept)


def copy_all(program: Program, file: ModelFile) -> Program:
    """Copy all that is still mapped, because the file is on a network and may change unnoticed."""
    mapped = [
        b for b in program.buffers
        if isinstance(b.value, Tensor) and not isinstance(b.value, DerivedTensor)
        and is_mapped(b.value.data)
    ]  # fmt: skip
    return copy(program, mapped, file)


def _pack_slices(
    kernels: Kernels, tensor: Tensor, layout: type[Layout], source: U8, data: U8, scratch: U8
) -> Iterator[None]:
    """Pack a tensor's bytes into `data`, which may be `source`; yields after each slice."""
    rows, columns = tensor.row_count, tensor.columns
    size = layout.row_bytes(columns)
    step = max(_SLICE // size // layout.GROUP, 1) * layout.GROUP
    for first in range(0, rows, step):
        part = slice(first * size, min(first + step, rows) * size)
        kernels.call(
            f"pack_{tensor.format.dtype}",
            y=data[part], scratch=scratch, w=source[part],
            k=columns, m=min(step, rows - first),
        )  # fmt: skip
        yield


def _group_bytes(tensor: Tensor) -> int:
    """Bytes of the rows of a packed group: what packing needs beside the tensor."""
    layout = tensor.format.packed
    return layout.GROUP * layout.row_bytes(tensor.columns) if layout else 0


def _tensor(buffer: Buffer) -> Tensor:
    if not isinstance(buffer.value, Tensor):
        raise ProgramError(f"{buffer}: expected a tensor of the file")
    return buffer.value
