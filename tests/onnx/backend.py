"""ONNX's interface for backends, `onnx.backend.base`, over `InferenceSession`.

    from tests.onnx.backend import prepare
    outputs = prepare(onnx.load("model.onnx")).run([x])

It needs the package onnx, and ml_dtypes for element types that NumPy lacks, whose inputs and
outputs are arrays of that package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from halfbyte.errors import HalfbyteError
from halfbyte.onnx.files.dtypes import SPECIAL
from halfbyte.onnx.session import InferenceSession, SessionOptions

DEVICE = "CPU"
_ML_DTYPES = {f"float8{kind}": f"float8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2")} | {
    "float8e5m2fnuz": "float8_e5m2fnuz", "float8e8m0": "float8_e8m0fnu",
    "float4e2m1": "float4_e2m1fn",
}  # fmt: skip


class HalfbyteRep(BackendRep):
    """A model ready to run.

    Parameters
    ----------
    session : InferenceSession
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for inputs, which are a mapping by name or values in the graph's order."""
        if not isinstance(inputs, Mapping):
            values = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
            names = [value.name for value in self.session.get_inputs()]
            if len(values) > len(names):
                names += [value.name for value in self.session.get_overridable_initializers()]
            inputs = dict(zip(names, values, strict=False))
        feeds = {name: _converted(value, _ours) for name, value in inputs.items()}
        return tuple(_converted(value, _theirs) for value in self.session.run(None, feeds))


class HalfbyteBackend(Backend):
    """Runs models on the processor."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = DEVICE, **kwargs: Any) -> bool:
        """Whether a model can be loaded."""
        try:
            cls.prepare(model, device, **kwargs)
        except HalfbyteError:
            return False
        return True

    @classmethod
    def prepare(
        cls,
        model: onnx.ModelProto,
        device: str = DEVICE,
        *,
        sess_options: SessionOptions | None = None,
        **kwargs: Any,
    ) -> HalfbyteRep:
        """A model ready to run.

        Raises
        ------
        ValueError
            The device is not the processor.
        HalfbyteError
            As raised by `InferenceSession`.
        """
        if not cls.supports_device(device):
            raise ValueError(f"device {device!r}: expected {DEVICE!r}")
        return HalfbyteRep(InferenceSession(model.SerializeToString(), sess_options))

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = DEVICE,
        outputs_info: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node; `opset_version` is the newest of the package onnx by default."""
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = [name for name in node.input if name]
        values = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
        graph = onnx.helper.make_graph(
            [node], "node",
            [onnx.helper.make_tensor_value_info(n, _number(values[n]), None) for n in names],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )  # fmt: skip
        opsets = [onnx.helper.make_opsetid("", opset)]
        if node.domain:
            opsets.append(onnx.helper.make_opsetid(node.domain, 1))
        model = onnx.helper.make_model(graph, opset_imports=opsets)
        return cls.prepare(model, device).run(values)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a device is the processor."""
        return device.partition(":")[0] == DEVICE


prepare = HalfbyteBackend.prepare
run_model = HalfbyteBackend.run_model
run_node = HalfbyteBackend.run_node
supports_device = HalfbyteBackend.supports_device
is_compatible = HalfbyteBackend.is_compatible


def _number(value: Any) -> int:
    """ONNX's number of an array's element type."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype))


def _converted(value: Any, convert: Any) -> Any:
    """A value with all its arrays converted, also in lists."""
    if isinstance(value, list):
        return [_converted(item, convert) for item in value]
    if isinstance(value, np.generic):  # ONNX's cases use numbers for tensors without dimensions
        value = np.asarray(value)
    return convert(value) if isinstance(value, np.ndarray) else value


def _ours(array: Any) -> Any:
    """An array of ml_dtypes in halfbyte's types."""
    for dtype in SPECIAL.values():
        if array.dtype.name == _ml_name(dtype):
            field = next(iter((dtype.fields or {}).values()))[0]
            whole = array.dtype.name.startswith(("int", "uint"))
            raw = array.astype(field) if whole else array.view(field)
            return np.ascontiguousarray(raw).reshape(array.shape).view(dtype)
    return array


def _theirs(array: Any) -> Any:
    """An array of halfbyte's types in those of ml_dtypes."""
    if array.dtype.names is None:
        return array
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, _ml_name(array.dtype)))
    raw = np.ascontiguousarray(array[array.dtype.names[0]]).reshape(array.shape)
    return raw.astype(dtype) if dtype.name.startswith(("int", "uint")) else raw.view(dtype)


def _ml_name(dtype: np.dtype[Any]) -> str:
    (name,) = dtype.names or ("",)
    return _ML_DTYPES.get(name, name)
