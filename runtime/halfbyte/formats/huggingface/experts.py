"""Matrices of experts as GGUF has them: stacked in one tensor, gate and up apart.

Folders have a matrix for each expert, which `Naming.rename` marks by its number, such as
``blk.0.ffn_up_exps.weight[3]``; or they have them stacked. Gate and up may be in one matrix, such
as ``blk.0.ffn_gate_up_exps.weight``, gate first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.derived import reordered, stacked, widened
from halfbyte.formats.huggingface.shapes import Shapes
from halfbyte.weights import Tensor

NUMBERED = re.compile(r"(.+)\[(\d{1,4})\]")


def with_stacks(where: str, tensors: Mapping[str, Tensor], shapes: Shapes) -> dict[str, Tensor]:
    """Tensors by GGUF's names; errors begin with `where`."""
    whole: dict[str, Tensor] = {}
    stacks: dict[str, dict[int, Tensor]] = {}
    for name, tensor in tensors.items():
        if numbered := NUMBERED.fullmatch(name):
            stacks.setdefault(numbered[1], {})[int(numbered[2])] = tensor
        else:
            whole[name] = tensor
    for name, parts in stacks.items():
        if name in whole:
            raise FormatError(f"{where}: tensors for {name!r}: both stacked and for each expert")
        whole[name] = _stack(where, name, parts, shapes[name][0])
    for name in [name for name in whole if "_gate_up" in name]:
        tensor = whole.pop(name)
        for half, part in enumerate(("_gate", "_up")):
            new = name.replace("_gate_up", part)
            whole[new] = _half(tensor, new, half)
    return whole


def _half(tensor: Tensor, name: str, half: int) -> Tensor:
    """The first or the second half of each matrix, or of each expert's bias."""
    if name.endswith(".bias"):
        return widened(tensor, name, lambda x: np.split(x, 2, axis=-1)[half])
    rows = np.arange(tensor.row_count).reshape(*tensor.shape[:-2], 2, -1)
    return reordered(tensor, name, rows[..., half, :])


def _stack(where: str, name: str, parts: Mapping[int, Tensor], count: int) -> Tensor:
    """The matrices of `count` experts as one tensor."""
    problem = ""
    formats = sorted({tensor.format.name for tensor in parts.values()})
    if lacking := [i for i in range(count) if i not in parts]:
        problem = f"expected {count} experts, expert {lacking[0]} is missing"
    elif len(parts) > count:
        problem = f"expected {count} experts, found {len(parts)}"
    elif len(formats) > 1:
        problem = f"expected experts of one type, found {formats}"
    if problem:
        raise FormatError(f"{where}: tensors for {name!r}: {problem}")
    return stacked([parts[i] for i in range(count)], name)
