"""An ONNX file as data: the contents of its messages, under ONNX's own names.

Tensors are NumPy arrays; those with raw data are views of the file's pages. Types that NumPy lacks
are structured dtypes with one field (`halfbyte.onnx.files.dtypes`).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
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
        TensorProto.DataType of a tensor's elements (of a map's keys); 0 if the file has none.
    shape : tuple of Dim, or None
        None if the rank is not known.
    element : TypeInfo, optional
        The type of the elements of a sequence, an optional or a map.
    denotations : tuple of str
        The meanings of the sizes (DATA_BATCH, ...), if there are any; not part of the type.
    """

    kind: str = "tensor"
    dtype: int = 0
    shape: tuple[Dim, ...] | None = None
    element: TypeInfo | None = None
    denotations: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class ValueInfo:
    """A named value and its type, which is None if the file has none."""

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
    """The value of an attribute in a function that is taken from the function's attribute."""

    name: str


@dataclass(eq=False)
class Node:
    """One call of an operator. Missing optional inputs and outputs are ''.

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
    version: int = 0  # of its domain, if it differs from the model's
    metadata: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs among its attributes."""
        values = [v if isinstance(v, list) else [v] for v in self.attributes.values()]
        return tuple(graph for value in values for graph in value if isinstance(graph, Graph))

    @property
    def title(self) -> str:
        """Its name, or else the name of its first output, which is unique in a graph."""
        return self.name or next(filter(None, self.outputs), self.op_type)

    def __str__(self) -> str:
        kind = f"{self.domain}.{self.op_type}" if self.domain else self.op_type
        return f"node {self.name!r} ({kind})" if self.name else f"node of {kind}"


@dataclass(eq=False)
class Graph:
    """Nodes in topological order. `initializers` are constants by name: arrays and sparse tensors.

    Initializers with elements of four or two bits are in `packed` too: the bytes of the file as a
    flat array, with the first element in the lowest bits.
    """

    name: str = ""
    nodes: list[Node] = field(default_factory=list)
    initializers: MutableMapping[str, Any] = field(default_factory=dict)
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
    attributes: tuple[str, ...]  # required ones
    defaults: Mapping[str, Any]  # attributes with a default
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
