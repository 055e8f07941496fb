"""An ONNX file as data: what its messages say, under ONNX's own names.

Tensors are NumPy arrays, views of the file's pages where they lie raw. Types that NumPy lacks are
one-field structured dtypes (`halfbyte.onnx.files.dtypes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from halfbyte.formats.mapped import MappedFile

Array = npt.NDArray[Any]
Dim = int | str | None  # a size, a symbolic name, or unknown


@dataclass(frozen=True)
class TypeInfo:
    """A value's type.

    Attributes
    ----------
    kind : str
        "tensor", "sparse_tensor", "sequence", "optional" or "map".
    dtype : int
        ONNX's TensorProto.DataType of a tensor's elements (of a map's keys); 0 where not said.
    shape : tuple of Dim, or None
        None where not even the rank is known.
    element : TypeInfo, optional
        Of sequences, optionals and maps.
    denotations : tuple of str
        What the sizes stand for (DATA_BATCH, ...), where any says it; not part of the type.
    """

    kind: str = "tensor"
    dtype: int = 0
    shape: tuple[Dim, ...] | None = None
    element: TypeInfo | None = None
    denotations: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class ValueInfo:
    """A named value's type; None where the file does not say it."""

    name: str
    type: TypeInfo | None = None


@dataclass(frozen=True)
class SparseTensor:
    """COO: `values` [n], `indices` [n] (linear) or [n, rank], and the dense `shape`."""

    values: Array
    indices: Array
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Reference:
    """An attribute of a function's node that takes its value from the function's attribute."""

    name: str


@dataclass(eq=False)
class Node:
    """One operator. Missing optional inputs and outputs are ''.

    An attribute is int, float, str (UTF-8; bytes where it is not), ndarray, Graph, SparseTensor,
    TypeInfo, Reference, or a list of these.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""  # "ai.onnx" is stored as ""
    name: str = ""
    overload: str = ""
    version: int = 0  # of its domain, where that is not the model's
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Its name, or, without one, that of its first output: unique in a graph at least."""
        return self.name or next(filter(None, self.outputs), self.op_type)

    def __str__(self) -> str:
        kind = f"{self.domain}.{self.op_type}" if self.domain else self.op_type
        return f"node {self.name!r} ({kind})" if self.name else f"node of {kind}"


@dataclass(eq=False)
class Graph:
    """Nodes in topological order. `initializers` are constants by name.

    Those of four or two bits an element are in `packed` too, as uint8 of the file's own bytes (the
    first element in the lowest bits), flat.
    """

    name: str = ""
    nodes: list[Node] = field(default_factory=list)
    initializers: dict[str, Array | SparseTensor] = field(default_factory=dict)
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)
    value_info: dict[str, ValueInfo] = field(default_factory=dict)
    packed: dict[str, Array] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    doc_string: str = ""


@dataclass(eq=False)
class Function:
    """A model-local function: nodes with formal inputs, outputs and attributes."""

    domain: str
    name: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]  # without a default: required
    defaults: Mapping[str, Any]  # attributes with one
    nodes: list[Node]
    opsets: dict[str, int]


@dataclass(eq=False)
class Model:
    """A whole file."""

    path: Path  # for messages, and the folder of external data
    graph: Graph
    opsets: dict[str, int]  # domain -> version; the default domain is ""
    functions: dict[tuple[str, str, str], Function] = field(default_factory=dict)
    ir_version: int = 0
    producer_name: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int = 0
    doc_string: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    mapped: list[MappedFile] = field(default_factory=list)  # files that tensors are views of
