"""`IOBinding`: inputs and outputs that are bound once and used by several runs."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.onnx.session.described import Described
from halfbyte.onnx.session.errors import RuntimeProblem, ValueProblem
from halfbyte.onnx.session.values import OrtValue, check_device, sizes_of
from halfbyte.onnx.session.vectors import OrtValueVector


class IOBinding:
    """The inputs and outputs of `InferenceSession.run_with_iobinding`.

    An output that is bound to memory is written there; each run allocates the others.
    """

    def __init__(self, session: Described) -> None:
        inputs = (*session.get_inputs(), *session.get_overridable_initializers())
        self._names = [argument.name for argument in inputs]
        self._inputs: dict[str, OrtValue] = {}
        self._outputs: dict[str, OrtValue | None] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: npt.NDArray[Any]) -> None:
        """Bind an input to an array, which each run reads again."""
        self.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(arr_on_cpu))

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind an input to the memory at an address, which must stay valid."""
        check_device(device_type)
        self.bind_ortvalue_input(name, _at(buffer_ptr, element_type, shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to an `OrtValue`."""
        if name not in self._names:
            raise RuntimeProblem(f"input {name!r}: expected one of {self._names}")
        self._inputs[name] = ortvalue

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Request an output, to be written at an address if there is one."""
        check_device(device_type)
        if buffer_ptr is None:
            self._outputs[name] = None
            return
        if element_type is None or shape is None:
            raise ValueProblem(f"output {name!r}: memory without `element_type` and `shape`")
        self._outputs[name] = _at(buffer_ptr, element_type, shape)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Request an output, to be written into an `OrtValue` of its type and shape."""
        self._outputs[name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Do nothing: there is one device."""

    def synchronize_outputs(self) -> None:
        """Do nothing: there is one device."""

    def get_outputs(self) -> list[OrtValue]:
        """The results of the last run, in the order in which outputs were bound."""
        return list(self._results)

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """As `get_outputs`, in the form that training packages use."""
        return OrtValueVector(self._results)

    @property
    def _iobinding(self) -> IOBinding:  # the object in C++, which packages pass on
        return self

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The results of the last run as arrays."""
        return [value.numpy() for value in self._results]

    def clear_binding_inputs(self) -> None:
        """Remove all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Remove all outputs and their results."""
        self._outputs.clear()
        self._results.clear()

    # ---- for the session -------------------------------------------------------------------------

    @property
    def feeds(self) -> dict[str, OrtValue]:
        """The values of the inputs."""
        return self._inputs

    @property
    def wanted(self) -> list[str]:
        """The names of the outputs."""
        return list(self._outputs)

    def fill(self, results: Sequence[OrtValue]) -> None:
        """Write the results of a run to where they were requested.

        Raises
        ------
        RuntimeProblem
            A result differs in type or shape from the memory that is bound to it.
        """
        filled = []
        for (name, target), result in zip(self._outputs.items(), results, strict=True):
            if target is not None:
                try:
                    target.update_inplace(result)
                except RuntimeProblem as error:
                    raise RuntimeProblem(f"output {name!r}: computed {error}") from None
            filled.append(target or result)
        self._results = filled


def _at(address: int, element_type: Any, shape: Sequence[int]) -> OrtValue:
    """The tensor at an address; the caller is responsible for its type and shape."""
    sizes = sizes_of(shape)
    dtype = np.dtype(OrtValue.ortvalue_from_shape_and_type([0], element_type)._tensor().dtype)
    memory = (ctypes.c_uint8 * (math.prod(sizes) * dtype.itemsize)).from_address(address)
    return OrtValue(np.frombuffer(memoryview(memory), dtype).reshape(sizes))
