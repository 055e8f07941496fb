"""A graph under construction: nodes, initializers, inputs and outputs, in one opset.

Operators whose parameters moved from attributes to inputs in later opsets are written as the opset
requires.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
EXTERNAL_FROM = 2_000_000_000  # bytes; a protobuf message is limited to 2 GiB
# the IR version of the release that brought an opset, so that old readers take the file
_IR = {11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10}

Shape = Sequence[int | str]


class GraphBuilder:
    """Collects nodes in order; methods return names of tensors."""

    def __init__(self, name: str, opset: int = 17) -> None:
        if opset not in _IR:
            raise ValueError(f"opset: expected {min(_IR)} to {max(_IR)}, found {opset}")
        self.name, self.opset = name, opset
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._scope: list[str] = []
        self._counts: dict[str, int] = {}

    def scope(self, name: str) -> _Scope:
        """A context in which names of nodes begin with this name."""
        return _Scope(self._scope, name)

    def node(self, op_type: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Append a node with one output; returns the output's name."""
        return self.nodes(op_type, inputs, [output] if output else 1, **attributes)[0]

    def nodes(
        self, op_type: str, inputs: Sequence[str], outputs: int | list[str], **attributes: Any
    ) -> list[str]:
        """Append a node; `outputs` are names, or their number."""
        path = "/".join(["", *self._scope, op_type])
        count = self._counts.get(path, 0)
        self._counts[path] = count + 1
        path += f"_{count}" if count else ""
        if isinstance(outputs, int):
            outputs = [f"{path}_output_{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(op_type, inputs, outputs, name=path, **attributes))
        return outputs

    def weight(self, name: str, values: npt.NDArray[Any]) -> str:
        """An initializer; the first of a name is stored."""
        if name not in self._initializers:
            tensor = numpy_helper.from_array(np.ascontiguousarray(values), name)
            self._initializers[name] = tensor
        return name

    def constant(self, value: Any, dtype: npt.DTypeLike = np.float32) -> str:
        """A small tensor in a Constant node, as exporters write scalars."""
        tensor = numpy_helper.from_array(np.array(value, dtype))
        return self.node("Constant", value=tensor)

    def ints(self, *values: int) -> str:
        """A vector of int64."""
        return self.constant(values, np.int64)

    def input(self, name: str, dtype: int, shape: Shape) -> str:
        """Declare an input; strings are symbolic dimensions."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, dtype: int, shape: Shape) -> None:
        """Declare an output, which a node must compute."""
        self._outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def unsqueeze(self, x: str, *axes: int) -> str:
        """Axes are an input since opset 13."""
        if self.opset < 13:
            return self.node("Unsqueeze", x, axes=axes)
        return self.node("Unsqueeze", x, self.ints(*axes))

    def reduce_mean(self, x: str, axis: int) -> str:
        """Mean over one axis, which is kept; axes are an input since opset 18."""
        if self.opset < 18:
            return self.node("ReduceMean", x, axes=[axis], keepdims=1)
        return self.node("ReduceMean", x, self.ints(axis), keepdims=1)

    def reduce_sum(self, x: str, axis: int) -> str:
        """Sum over one axis, which is dropped; axes are an input since opset 13."""
        if self.opset < 13:
            return self.node("ReduceSum", x, axes=[axis], keepdims=0)
        return self.node("ReduceSum", x, self.ints(axis), keepdims=0)

    def reduce_l2(self, x: str, axis: int) -> str:
        """Euclidean norm over one axis, which is kept; axes are an input since opset 18."""
        if self.opset < 18:
            return self.node("ReduceL2", x, axes=[axis], keepdims=1)
        return self.node("ReduceL2", x, self.ints(axis), keepdims=1)

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Sizes are an input since opset 13."""
        if self.opset < 13:
            return self.nodes("Split", [x], len(sizes), axis=axis, split=sizes)
        return self.nodes("Split", [x, self.ints(*sizes)], len(sizes), axis=axis)

    def dim(self, x: str, axis: int) -> str:
        """One dimension of a tensor, as a scalar: Shape, Gather."""
        shape = self.node("Shape", x)
        return self.node("Gather", shape, self.constant(axis, np.int64), axis=0)

    def shape_of(self, *dims: str | int) -> str:
        """A shape from scalars that are tensors and from numbers: Unsqueeze, Concat."""
        parts = [self.ints(d) if isinstance(d, int) else self.unsqueeze(d, 0) for d in dims]
        return self.node("Concat", *parts, axis=0)

    def model(self) -> onnx.ModelProto:
        """The model, unchecked."""
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, [*self._initializers.values()]
        )
        model: onnx.ModelProto = helper.make_model(
            graph, producer_name="halfbyte.tools", ir_version=_IR[self.opset],
            opset_imports=[helper.make_opsetid("", self.opset)],
        )  # fmt: skip
        return model


class _Scope:
    def __init__(self, path: list[str], name: str) -> None:
        self._path, self._name = path, name

    def __enter__(self) -> None:
        self._path.append(self._name)

    def __exit__(self, *_: object) -> None:
        self._path.pop()


def weight_bytes(model: onnx.ModelProto) -> int:
    """Bytes of all initializers."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer)


def save(model: onnx.ModelProto, path: Path, external: bool | None = None) -> None:
    """Write a model; weights beside it in ``<name>.data`` where a message cannot hold them."""
    if external is None:
        external = weight_bytes(model) > EXTERNAL_FROM
    if not external:
        onnx.save(model, path)
        return
    data = path.with_name(f"{path.name}.data")
    data.unlink(missing_ok=True)  # onnx would append to it
    onnx.save(model, path, save_as_external_data=True, location=data.name)
