"""Writing programs as text and tensors as .npy files into a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from halfbyte.core.program import Program
from halfbyte.onnx.files.dtypes import DTYPES
from halfbyte.onnx.files.model import Graph, Node, SparseTensor, ValueInfo
from halfbyte.outputs import reporting, write_file, write_text

MAX_NAME = 180  # bytes of a file name; file systems allow 255
MAX_SHOWN = 8  # elements of an attribute


class Dump:
    """A folder to write to, created with the first file.

    Parameters
    ----------
    folder : Path or None
        With None, nothing is written.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def __bool__(self) -> bool:
        return self._folder is not None

    def text(self, name: str, text: str) -> None:
        """Write NAME.txt."""
        if self._folder is not None:
            _make(self._folder)
            write_text(self._folder / f"{name}.txt", text)

    def graphs(self, before: Graph, after: Graph) -> None:
        """Write a graph as stored and as it runs."""
        if self:
            self.text("graph-before", graph_text(before))
            self.text("graph-after", graph_text(after))

    def programs(self, programs: Sequence[Program]) -> None:
        """Write programs as captured, and after their memory was planned."""
        if self:
            captured = [p.rewritten(p.instructions).dump() for p in programs]
            self.text("program-before", "\n\n".join(captured))
            self.text("program-after", "\n\n".join(p.dump() for p in programs))

    def value(self, folder: str, name: str, value: Any) -> None:
        """Write FOLDER/NAME.npy; items of a list are NAME.0.npy, and so on.

        Text and other objects are left out: .npy can store them only as pickles.
        """
        if self._folder is None:
            return
        if isinstance(value, list):
            for number, item in enumerate(value):
                self.value(folder, f"{name}.{number}", item)
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            target = self._folder / folder
            _make(target)
            path = target / f"{file_name(name)}.npy"
            write_file(path, lambda file: np.save(file, value, allow_pickle=False))

    def values(self, folder: str, values: Mapping[str, Any]) -> None:
        """Write several values."""
        for name, value in values.items():
            self.value(folder, name, value)


def _make(folder: Path) -> None:
    with reporting(folder):
        folder.mkdir(parents=True, exist_ok=True)


def file_name(name: str) -> str:
    """A file name for a value: characters are escaped as %xx, and a long name is cut and hashed."""
    quoted = quote(name, safe="")
    if quoted.startswith("."):
        quoted = "%2E" + quoted[1:]
    if len(quoted) > MAX_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        quoted = f"{quoted[:MAX_NAME]}-{digest}"
    return quoted


def graph_text(graph: Graph, indent: str = "") -> str:
    """A graph as text: inputs, initializers, nodes with their bodies, outputs."""
    lines = [f"{indent}graph {graph.name}: {len(graph.nodes)} nodes"]
    lines += [f"{indent}input   {_info(v)}" for v in graph.inputs]
    lines += [f"{indent}const   {n} {_kind(v)}" for n, v in graph.initializers.items()]
    for number, node in enumerate(graph.nodes):
        lines += _node_lines(node, number, indent)
    lines += [f"{indent}output  {_info(v)}" for v in graph.outputs]
    return "\n".join(lines)


def _node_lines(node: Node, number: int, indent: str) -> Iterator[str]:
    plain = {k: v for k, v in node.attributes.items() if not isinstance(v, Graph)}
    attributes = "".join(f", {key}={_shown(value)}" for key, value in plain.items())
    kind = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    outputs, inputs = (", ".join(n or "-" for n in names) for names in (node.outputs, node.inputs))
    named = f"  # {node.name}" if node.name else ""
    yield f"{indent}{number:6d}  {outputs} = {kind}({inputs}{attributes}){named}"
    for key, value in node.attributes.items():
        if isinstance(value, Graph):
            yield f"{indent}          {key}:"
            yield graph_text(value, indent + " " * 12)


def _info(info: ValueInfo) -> str:
    kind = info.type
    if kind is None:
        return info.name
    dtype = DTYPES.get(kind.dtype)
    shape = "" if kind.shape is None else [d if d is not None else "?" for d in kind.shape]
    name = "" if dtype is None else f" {dtype.names[0] if dtype.names else dtype}"
    return f"{info.name}{'' if kind.kind == 'tensor' else ' ' + kind.kind}{name}{shape}"


def _kind(value: Any) -> str:
    if isinstance(value, SparseTensor):
        return f"sparse {value.values.dtype}{list(value.shape)}"
    return f"{value.dtype.names[0] if value.dtype.names else value.dtype}{list(value.shape)}"


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        if value.size > MAX_SHOWN:
            return f"<{_kind(value)}>"
        return str(value.tolist())
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
