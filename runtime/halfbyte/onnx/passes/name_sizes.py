"""Sizes that may differ between runs become named sizes of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from halfbyte.core.buffer import Buffer, ComputedSize
from halfbyte.core.dtypes import DTYPES
from halfbyte.core.program import Program
from halfbyte.errors import ProgramError
from halfbyte.onnx.sizes import FixedSizeError, Later, Sizes, is_named


def name_sizes(program: Program, sizes: Sizes) -> Program:
    """The program with a `ComputedSize` for each `NamedSize`, in its own buffers too.

    Constants that depend on sizes get memory for the largest ones, with the numbers of the captured
    call in it.

    Raises
    ------
    FixedSizeError
        An instruction is not possible with all sizes.
    """
    named = program.rewritten([])
    for buffer in _whole(program):
        name_buffer(buffer, sizes)
    for instruction in program.instructions:
        instruction = replace(
            instruction,
            attributes=_computed(instruction.attributes, sizes),
            dims=_computed(instruction.dims, sizes),
        )
        for value in (*instruction.attributes.values(), *instruction.dims.values()):
            if isinstance(value, ComputedSize):
                named.sizes.setdefault(value.name, value)
        try:
            if not instruction.operator.host:
                instruction.operator.check(instruction)
        except ProgramError:
            raise FixedSizeError(sizes.values) from None
        named.append(instruction)
    return named


def name_buffer(buffer: Buffer, sizes: Sizes) -> None:
    """Change the shape of a buffer, which only one program has, in place."""
    if is_named(buffer.offset):
        raise FixedSizeError(sizes.values)
    if buffer.source is not None:
        name_buffer(buffer.source, sizes)
    value: Any = buffer.value
    later = value if issubclass(type(value), Later) else None
    if later is None and not any(map(is_named, buffer.shape)):
        return
    shape = tuple(sizes.computed(d) if is_named(d) else d for d in buffer.shape)
    buffer.__dict__.update(shape=shape)
    buffer.__dict__.pop("nbytes", None)
    if later is not None:
        numbers = later.now()
        sizes.constants[buffer] = later
        memory = np.zeros(buffer.sizes_at({}), DTYPES[buffer.dtype])
        memory.reshape(-1)[: numbers.size] = numbers.reshape(-1)
        buffer.__dict__.update(value=memory)
    if buffer.source is not None and buffer.offset + buffer.nbytes > buffer.root.nbytes:
        raise FixedSizeError(sizes.values)


def _whole(program: Program) -> list[Buffer]:
    used = [b for i in program.instructions for b in (*i.inputs, *i.outputs)]
    return list(dict.fromkeys([*program.inputs.values(), *program.outputs.values(), *used]))


def _computed(values: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    return {name: sizes.computed(v) if is_named(v) else v for name, v in values.items()}
