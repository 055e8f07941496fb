"""`OrtValueVector`, and copies between values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from halfbyte.onnx.session.errors import RuntimeProblem
from halfbyte.onnx.session.values import OrtValue


class OrtValueVector(list[OrtValue]):
    """A list of values, as ONNX Runtime's training packages use it."""

    def push_back(self, value: OrtValue) -> None:
        """Append a value."""
        self.append(value)

    def push_back_batch(
        self,
        tensors: Sequence[Any],
        data_ptrs: Sequence[int],
        element_types: Sequence[Any],
        shapes: Sequence[Sequence[int]],
        devices: Sequence[Any],
    ) -> None:
        """Append values of other libraries' tensors, whose memory they share."""
        for tensor in tensors:
            self.append(OrtValue.from_dlpack(tensor))

    def reserve(self, size: int) -> None:
        """Do nothing: a list grows."""

    def shrink_to_fit(self) -> None:
        """Do nothing."""

    def element_type_at(self, index: int) -> int:
        """ONNX's number of a value's element type."""
        return self[index].element_type()

    def bool_tensor_indices(self) -> list[int]:
        """The places of tensors of bools."""
        return [i for i, value in enumerate(self) if value.data_type() == "tensor(bool)"]

    def dlpack_at(self, index: int) -> Any:
        """A value for other libraries, which share its memory."""
        return self[index].__dlpack__()

    def to_dlpacks(self, to_tensor: Callable[[Any], Any] | None = None) -> list[Any]:
        """The values for other libraries, each passed to a function if there is one."""
        packs = [value.__dlpack__() for value in self]
        return packs if to_tensor is None else [to_tensor(pack) for pack in packs]


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copy tensors into others of the same types and shapes."""
    if len(src) != len(dst):
        raise RuntimeProblem(f"{len(dst)} targets for {len(src)} tensors: expected as many")
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(np.asarray(source.numpy()) if source is target else source)
