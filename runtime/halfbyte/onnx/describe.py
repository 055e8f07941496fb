"""`halfbyte info` of an ONNX graph: inputs and outputs, operators, parameters, bytes by type."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import printable
from halfbyte.onnx.files import Graph, Model, Node, SparseTensor, open_onnx
from halfbyte.onnx.session.metadata import element_name, node_arg


def describe(path: Path, *, as_json: bool = False) -> str:
    """A description as text or JSON; the file is read, and nothing runs."""
    data = _data(open_onnx(path))
    return json.dumps(data, indent=1) if as_json else _text(data)


def _data(model: Model) -> dict[str, Any]:
    constants = model.graph.initializers
    inputs = [node_arg(v) for v in model.graph.inputs if v.name not in constants]
    outputs = [node_arg(v) for v in model.graph.outputs]
    operators: Counter[str] = Counter()
    parameters: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    _count(model.graph, operators, parameters, sizes)
    for function in model.functions.values():
        _count(Graph(nodes=function.nodes), operators, parameters, sizes)
    return {
        "file": str(model.path), "format": "ONNX", "ir_version": model.ir_version,
        "opsets": {domain or "ai.onnx": version for domain, version in model.opsets.items()},
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "metadata": model.metadata,
        "inputs": [{"name": a.name, "type": a.type, "shape": a.shape} for a in inputs],
        "outputs": [{"name": a.name, "type": a.type, "shape": a.shape} for a in outputs],
        "operators": dict(operators.most_common()),
        "functions": [f"{f.domain}.{f.name}" for f in model.functions.values()],
        "parameters": sum(parameters.values()),
        "bytes_by_type": dict(sizes.most_common()),
    }  # fmt: skip


def _count(
    graph: Graph, operators: Counter[str], parameters: Counter[str], sizes: Counter[str]
) -> None:
    """Count the nodes and constants of a graph and of its subgraphs."""
    for name, value in graph.initializers.items():
        packed = graph.packed.get(name)
        _count_tensor(value, parameters, sizes, None if packed is None else packed.nbytes)
    for node in graph.nodes:
        operators[f"{node.domain}.{node.op_type}" if node.domain else node.op_type] += 1
        for value in _tensors(node):
            _count_tensor(value, parameters, sizes)
        for inner in node.graphs:
            _count(inner, operators, parameters, sizes)


def _tensors(node: Node) -> Iterable[Any]:
    for value in node.attributes.values():
        yield from (value if isinstance(value, list) else [value])


def _count_tensor(
    value: Any, parameters: Counter[str], sizes: Counter[str], nbytes: int | None = None
) -> None:
    if isinstance(value, SparseTensor):
        value = value.values
    if isinstance(value, np.ndarray):
        name = element_name(value.dtype)
        parameters[name] += value.size
        sizes[name] += value.nbytes if nbytes is None else nbytes


def _text(data: dict[str, Any]) -> str:
    opsets = ", ".join(f"{domain} {version}" for domain, version in data["opsets"].items())
    lines = [f"{data['file']}: ONNX, IR version {data['ir_version']}, opsets {opsets}"]
    if data["producer"]:
        lines.append(f"producer: {printable(data['producer'])}")
    lines += [f"{printable(key)}: {printable(text)}" for key, text in data["metadata"].items()]
    for part in ("inputs", "outputs"):
        lines += ["", f"{part}:"]
        lines += [f"  {printable(a['name'])}: {a['type']} {a['shape']}" for a in data[part]]
    lines += ["", f"{sum(data['operators'].values())} nodes:"]
    lines += [f"  {printable(name):<32}{count:>8}" for name, count in data["operators"].items()]
    if data["functions"]:
        lines.append(f"functions: {', '.join(map(printable, data['functions']))}")
    lines += ["", f"{data['parameters']:,} parameters:"]
    lines += [f"  {name:<32}{size:>14,} bytes" for name, size in data["bytes_by_type"].items()]
    return "\n".join(lines)
