"""Reader of ONNX's messages, from ModelProto down (onnx.proto, IR versions 3 to 14).

Every length, count and shape is compared with the remaining bytes before anything is allocated.
Fields that only help people and tools are skipped (doc strings of values and nodes, quantization
annotations, layouts on several devices), and so are unknown fields, as in protobuf. Training
information is skipped unless it sets values that inference reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from halfbyte.errors import UnsupportedError
from halfbyte.formats.protobuf import Message, Value
from halfbyte.onnx.files.external import External
from halfbyte.onnx.files.initializers import Initializers
from halfbyte.onnx.files.model import Function, Graph, Model, Node, Reference
from halfbyte.onnx.files.order import arrange_graph, check_functions, check_opsets
from halfbyte.onnx.files.tensors import MAX_NAME, entry, read_sparse, read_tensor
from halfbyte.onnx.files.types import read_type, read_value_info

IR_VERSIONS = range(3, 15)
_MAX_NODES = 1 << 18  # in all graphs of a file; large models have some ten thousand
_MAX_TRAINING = 1 << 10
_MAX_NESTING = 32  # of graphs; protobuf's own readers stop at a hundred nested messages
_IR_VERSION, _OPSET, _GRAPH, _METADATA, _TRAINING, _FUNCTION = 1, 8, 7, 14, 20, 25
_TEXTS = {2: "producer_name", 3: "producer_version", 4: "domain", 6: "doc_string"}

# AttributeProto.AttributeType -> its name, the field of its values, whether it is a list.
_ATTRIBUTES = {
    1: ("FLOAT", 2, False), 2: ("INT", 3, False), 3: ("STRING", 4, False),
    4: ("TENSOR", 5, False), 5: ("GRAPH", 6, False), 6: ("FLOATS", 7, True), 7: ("INTS", 8, True),
    8: ("STRINGS", 9, True), 9: ("TENSORS", 10, True), 10: ("GRAPHS", 11, True),
    11: ("SPARSE_TENSOR", 22, False), 12: ("SPARSE_TENSORS", 23, True),
    13: ("TYPE_PROTO", 14, False), 14: ("TYPE_PROTOS", 15, True),
}  # fmt: skip
_CONTENT = {field for _, field, _ in _ATTRIBUTES.values()}
_DEFAULTS: dict[int, Any] = {1: 0.0, 2: 0, 3: ""}  # writers may omit zeros


class Reader:
    """Reads the messages of one file.

    Parameters
    ----------
    path : Path
        The path that errors name.
    external : External
        The files beside it.
    memory : Memory, optional
        Memory apart from NumPy's, for large initializers of the main graph.
    """

    def __init__(self, path: Path, external: External, memory: Any = None) -> None:
        self._path, self._external, self._memory = path, external, memory
        self._nodes = 0

    def model(self, data: memoryview) -> Model:
        """A ModelProto, checked as a whole."""
        message = Message(data, self._path, "model")
        texts: dict[str, Any] = {}
        metadata: dict[str, str] = {}
        numbers = {_IR_VERSION: 0, 5: 0}
        opsets: dict[str, int] = {}
        functions: list[Function] = []
        graphs: list[Message] = []
        training: list[Message] = []
        for number, value in message.fields():
            if number in numbers:
                numbers[number] = message.integer(value)
            elif number in _TEXTS:
                texts[_TEXTS[number]] = message.text(value)
            elif number == _OPSET:
                _opset(message.message(value, "opset_import"), opsets)
            elif number == _GRAPH:
                if graphs:
                    raise message.error("expected one graph, found another")
                graphs.append(message.message(value, "graph"))
            elif number == _METADATA:
                key, text = entry(message.message(value, "metadata_props"))
                metadata[key] = text
            elif number == _TRAINING:
                if len(training) == _MAX_TRAINING:
                    raise message.error(f"expected at most {_MAX_TRAINING} training_info")
                training.append(message.message(value, "training_info"))
            elif number == _FUNCTION:
                functions.append(self.function(message.message(value, "function")))
        ir_version = numbers[_IR_VERSION]
        self._check_version(ir_version)
        if not graphs:
            raise message.error("expected one graph, found none")
        model = Model(
            self._path, self.graph(graphs[0]), opsets, _by_key(message, functions), ir_version,
            model_version=numbers[5], metadata=metadata, **texts,
        )  # fmt: skip
        self._external.refuse_overlaps()
        arrange_graph(self._path, model.graph)
        check_functions(model)
        check_opsets(model)
        for info in training:
            _check_training(info, model)
        return model

    def _check_version(self, version: int) -> None:
        if version not in IR_VERSIONS:
            raise UnsupportedError(
                f"{self._path}: expected IR version {IR_VERSIONS[0]} to {IR_VERSIONS[-1]}, found "
                f"{version}"
            )

    def graph(self, message: Message, depth: int = 0, references: bool = False) -> Graph:
        """A GraphProto; in functions, `references` to attributes are allowed."""
        if depth > _MAX_NESTING:
            raise message.error(f"graphs nested more than {_MAX_NESTING} deep")
        apart = depth == 0 and self._memory is not None
        graph = Graph(initializers=Initializers(self._memory)) if apart else Graph()
        for number, value in message.fields():
            if number == 1:
                graph.nodes.append(
                    self.node(
                        message.message(value, f"{message.name}: node {len(graph.nodes)}"),
                        depth, references,
                    )
                )  # fmt: skip
            elif number == 2:
                graph.name = _name(message, value)
            elif number == 10:
                graph.doc_string = message.text(value)
            elif number == 5:
                inner = message.message(value, f"initializer {len(graph.initializers)}")
                tensor = read_tensor(inner, self._external, apart=apart)
                _add(graph, inner, tensor.name, tensor.array)
                if tensor.packed is not None:
                    graph.packed[tensor.name] = tensor.packed
            elif number == 15:
                inner = message.message(value, f"initializer {len(graph.initializers)}")
                _add(graph, inner, *read_sparse(inner, self._external))
            elif number == 11:
                graph.inputs.append(read_value_info(message.message(value, "graph input")))
            elif number == 12:
                graph.outputs.append(read_value_info(message.message(value, "graph output")))
            elif number == 13:
                info = read_value_info(message.message(value, "value_info"))
                graph.value_info[info.name] = info
            elif number == 16:
                key, text = entry(message.message(value, "metadata_props"))
                graph.metadata[key] = text
        return graph

    def node(self, message: Message, depth: int, references: bool) -> Node:
        """A NodeProto in a graph that is `depth` deep."""
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise message.error(f"expected at most {_MAX_NODES} nodes")
        inputs: list[str] = []
        outputs: list[str] = []
        attributes: dict[str, Any] = {}
        metadata: dict[str, str] = {}
        texts = {3: "", 4: "", 7: "", 8: ""}
        inner = ""
        for number, value in message.fields():
            if number == 1:
                inputs.append(_name(message, value))
            elif number == 2:
                outputs.append(_name(message, value))
            elif number == 5:
                inner = inner or str(Node(texts[4], (), (), domain=texts[7], name=texts[3]))
                self._attribute(message.message(value, inner), attributes, depth, references)
            elif number in texts:
                texts[number] = _name(message, value)
            elif number == 9:
                key, text = entry(message.message(value, message.name))
                metadata[key] = text
        kind, domain = texts[4], _domain(message, texts[7])
        if not kind or not kind.isprintable():
            raise message.error(f"op_type {kind!r}, expected a name")
        return Node(
            kind, tuple(inputs), tuple(outputs), attributes, domain, texts[3], texts[8],
            metadata=metadata,
        )  # fmt: skip

    def function(self, message: Message) -> Function:
        """A FunctionProto."""
        lists: dict[int, list[str]] = {4: [], 5: [], 6: []}
        texts = {1: "", 10: "", 13: ""}
        nodes: list[Node] = []
        defaults: dict[str, Any] = {}
        opsets: dict[str, int] = {}
        for number, value in message.fields():
            if number in texts:
                texts[number] = _name(message, value)
            elif number in lists:
                lists[number].append(_name(message, value))
            elif number == 7:
                inner = message.message(value, f"function {texts[1]!r}: node {len(nodes)}")
                nodes.append(self.node(inner, 0, True))
            elif number == 9:
                _opset(message.message(value, "opset_import"), opsets)
            elif number == 11:
                inner = message.message(value, f"function {texts[1]!r}")
                self._attribute(inner, defaults, 0, False)
        if not texts[1] or not texts[1].isprintable():
            raise message.error(f"name {texts[1]!r}, expected a name")
        twice = set(defaults) & set(lists[6])
        if twice or len(set(lists[6])) < len(lists[6]):
            raise message.error(f"function {texts[1]!r}: an attribute appears twice")
        return Function(
            _domain(message, texts[10]), texts[1], texts[13], tuple(lists[4]), tuple(lists[5]),
            tuple(lists[6]), defaults, nodes, opsets,
        )  # fmt: skip

    def _attribute(
        self, message: Message, attributes: dict[str, Any], depth: int, references: bool
    ) -> None:
        """Add an AttributeProto to the `attributes` of its node."""
        name = reference = ""
        kind = 0
        content: dict[int, list[Any]] = {}
        for number, value in message.fields():
            if number in _CONTENT:
                content.setdefault(number, []).extend(
                    self._values(message, number, value, depth, references)
                )
            elif number == 1:
                name = _name(message, value)
            elif number == 20:
                kind = message.integer(value)
            elif number == 21:
                reference = _name(message, value)
        if not name:
            raise message.error("an attribute without a name")
        message = Message(message.data, message.path, f"{message.name}: attribute {name!r}")
        if name in attributes:
            raise message.error("appears twice")
        if kind not in _ATTRIBUTES:
            raise message.error(f"type {kind}, expected one of 1 to {max(_ATTRIBUTES)}")
        type_name, field, is_list = _ATTRIBUTES[kind]
        values = content.pop(field, [])
        if content:
            raise message.error(f"a value in field {min(content)}, expected {type_name} in {field}")
        if reference and (values or not references):
            raise message.error(f"refers to {reference!r} outside a function, or has a value")
        if reference:
            attributes[name] = Reference(reference)
        elif is_list:
            attributes[name] = values
        elif values or kind in _DEFAULTS:
            attributes[name] = values[-1] if values else _DEFAULTS[kind]
        else:
            raise message.error(f"expected one {type_name}, found none")

    def _values(
        self, message: Message, field: int, value: Value, depth: int, references: bool
    ) -> Sequence[Any]:
        """The values of one field of an attribute: one, or several that are packed."""
        if field == 8:
            return message.integers((value,))
        if field == 3:
            return (message.integer(value),)
        if field == 2:
            return (message.number(value),)
        if field == 7:
            return list(message.number_array((value,), "<f4").tolist())
        if field in (4, 9):
            return (_text_or_bytes(message, value),)
        inner = message.message(value, message.name)
        if field in (5, 10):
            return (read_tensor(inner, self._external).array,)
        if field in (6, 11):
            return (self.graph(inner, depth + 1, references),)
        if field in (22, 23):
            return (read_sparse(inner, self._external)[1],)
        return (_type(inner),)


def _type(message: Message) -> Any:
    info = read_type(message)
    if info is None:
        raise message.error("an empty type")
    return info


def _name(message: Message, value: Value) -> str:
    text = message.text(value)
    if len(text) > MAX_NAME:
        raise message.error(f"a name of {len(text)} characters, expected at most {MAX_NAME}")
    return text


def _domain(message: Message, text: str) -> str:
    """A domain; the default domain has two names, and is ""."""
    if not text.isprintable():
        raise message.error(f"domain {text!r}, expected a name")
    return "" if text == "ai.onnx" else text


def _text_or_bytes(message: Message, value: Value) -> str | bytes:
    data = message.bytes(value)
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return bytes(data)


def _opset(message: Message, opsets: dict[str, int]) -> None:
    """Add an OperatorSetIdProto to `opsets`."""
    domain, version = "", 0
    for number, value in message.fields():
        if number == 1:
            domain = _domain(message, _name(message, value))
        elif number == 2:
            version = message.integer(value)
    if version < 1:
        raise message.error(f"version {version} of domain {domain!r}, expected 1 or more")
    if opsets.setdefault(domain, version) != version:
        raise message.error(f"versions {opsets[domain]} and {version} of domain {domain!r}")


def _add(graph: Graph, message: Message, name: str, value: Any) -> None:
    if not name:
        raise message.error("an initializer without a name")
    if name in graph.initializers:
        raise message.error(f"initializer {name!r} appears twice")
    graph.initializers[name] = value


def _by_key(message: Message, functions: list[Function]) -> dict[tuple[str, str, str], Function]:
    by_key: dict[tuple[str, str, str], Function] = {}
    for function in functions:
        key = (function.domain, function.name, function.overload)
        if key in by_key:
            raise message.error(f"function {key} appears twice")
        by_key[key] = function
    return by_key


def _check_training(message: Message, model: Model) -> None:
    """Raise if training would begin by setting values that inference reads.

    The values of these initializers in the file may be anything. The training steps themselves do
    not matter to inference.
    """
    for number, value in message.fields():
        if number == 3:
            name, _ = entry(message.message(value, "training_info"))
            if name in model.graph.initializers:
                raise UnsupportedError(
                    f"{model.path}: training_info: initializer {name!r} is set by training"
                )
