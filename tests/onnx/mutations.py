"""Models with one thing wrong, made from models that run: like hostile or broken files.

    for mutant in mutations([model_bytes, ...], 1000):
        ...mutant.kind, mutant.seed, mutant.data

The same seeds and count give the same mutants. A mutant may happen to be a model that still runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import AttributeProto, TensorProto

Random = np.random.Generator

_HUGE = (1 << 31, (1 << 31) - 1, 1 << 40, 1 << 62, (1 << 63) - 1)
_ODD = (0, 1, 2, 3, -1, -2, 7, 64, 1 << 20, *_HUGE, -(1 << 63))


@dataclass(frozen=True)
class Mutant:
    """One broken model: the kind of change, the index of its seed, and its bytes."""

    kind: str
    seed: int
    data: bytes


def mutations(seeds: Sequence[bytes], count: int, random_seed: int = 0) -> Iterator[Mutant]:
    """Mutants of all kinds in turn; a change that does not apply to its seed is skipped.

    Parameters
    ----------
    seeds
        Models as bytes.
    count
        The number of mutants.
    random_seed
        The seed of all random choices.
    """
    random = np.random.default_rng(random_seed)
    kinds = [*BYTES, *MODELS]
    index = yielded = 0
    while yielded < count:
        kind = kinds[index % len(kinds)]
        seed = int(random.integers(len(seeds)))
        index += 1
        data = _mutant(seeds[seed], kind, random)
        if data is not None:
            yielded += 1
            yield Mutant(kind, seed, data)


def mutated(data: bytes, random: Random) -> bytes:
    """One change of any kind; one of bytes if they are not a model, or nothing else applies."""
    kind = str(random.choice([*BYTES, *MODELS]))
    try:
        mutant = _mutant(data, kind, random)
    except (DecodeError, ValueError, TypeError, EncodeError):  # not a model any more
        mutant = None
    return mutant or _mutant(data, str(random.choice([*BYTES])), random) or data


def _mutant(seed: bytes, kind: str, random: Random) -> bytes | None:
    """The changed model; None if this change does not apply."""
    if kind in BYTES:
        data = bytearray(seed)
        BYTES[kind](data, random)
        return bytes(data)
    model = onnx.load_from_string(seed)
    if not MODELS[kind](model, random):
        return None
    return bytes(model.SerializeToString())


# ---- bytes -----------------------------------------------------------------------------------


def _place(data: bytearray, random: Random) -> int:
    """A position, half of the time near the beginning or the end, where names and nodes are."""
    near = min(len(data), 400)
    which = random.integers(4)
    if which == 0:
        return int(random.integers(near))
    if which == 1:
        return len(data) - 1 - int(random.integers(near))
    return int(random.integers(len(data)))


def _flip_bits(data: bytearray, random: Random) -> None:
    for _ in range(random.integers(1, 5)):
        data[_place(data, random)] ^= 1 << int(random.integers(8))


def _set_bytes(data: bytearray, random: Random) -> None:
    for _ in range(random.integers(1, 5)):
        data[_place(data, random)] = int(random.choice([0, 1, 2, 8, 10, 0x7F, 0x80, 0xFF]))


def _change_length(data: bytearray, random: Random) -> None:
    """Write a varint of two bytes, as lengths have, or an endless one."""
    at = _place(data, random)
    change = [b"\xff\x7f", b"\xff\xff\xff\xff\x07", b"\xff" * 10, b"\x80\x80\x00"]
    data[at : at + 2] = change[random.integers(len(change))]


def _cut(data: bytearray, random: Random) -> None:
    at = _place(data, random)
    del data[at : at + int(random.integers(1, 40))]


def _insert(data: bytearray, random: Random) -> None:
    at = _place(data, random)
    data[at:at] = random.bytes(int(random.integers(1, 40)))


def _truncate(data: bytearray, random: Random) -> None:
    del data[int(random.integers(len(data))) :]


def _repeat(data: bytearray, random: Random) -> None:
    at = _place(data, random)
    data[at:at] = data[at : at + int(random.integers(1, 400))]


BYTES: dict[str, Callable[[bytearray, Random], None]] = {
    "flip bits": _flip_bits, "set bytes": _set_bytes, "change length": _change_length,
    "cut": _cut, "insert": _insert, "truncate": _truncate, "repeat": _repeat,
}  # fmt: skip


# ---- models ----------------------------------------------------------------------------------


def _node(model: onnx.ModelProto, random: Random) -> onnx.NodeProto | None:
    nodes = model.graph.node
    return nodes[int(random.integers(len(nodes)))] if nodes else None


def _initializer(model: onnx.ModelProto, random: Random) -> TensorProto | None:
    tensors = [*model.graph.initializer]
    tensors += [a.t for node in model.graph.node for a in node.attribute if a.HasField("t")]
    return tensors[int(random.integers(len(tensors)))] if tensors else None


def _attribute(model: onnx.ModelProto, random: Random) -> AttributeProto | None:
    attributes = [a for node in model.graph.node for a in node.attribute]
    return attributes[int(random.integers(len(attributes)))] if attributes else None


def _cycle(model: onnx.ModelProto, random: Random) -> bool:
    """A node reads its own output, or a value that depends on it."""
    node = _node(model, random)
    if node is None or not node.input or not node.output:
        return False
    reached = {node.output[0]}
    for other in model.graph.node:
        if reached.intersection(other.input):
            reached.update(filter(None, other.output))
    node.input[int(random.integers(len(node.input)))] = random.choice(sorted(reached))
    return True


def _missing_input(model: onnx.ModelProto, random: Random) -> bool:
    node = _node(model, random)
    if node is None or not node.input:
        return False
    node.input[int(random.integers(len(node.input)))] = random.choice(["nobody", ""])
    return True


def _fewer_inputs(model: onnx.ModelProto, random: Random) -> bool:
    node = _node(model, random)
    if node is None or not node.input:
        return False
    del node.input[int(random.integers(len(node.input)))]
    return True


def _more_inputs(model: onnx.ModelProto, random: Random) -> bool:
    node = _node(model, random)
    if node is None or not node.input:
        return False
    node.input.extend([node.input[0]] * int(random.integers(1, 9)))
    return True


def _other_inputs(model: onnx.ModelProto, random: Random) -> bool:
    """A node reads any other value of the model."""
    node = _node(model, random)
    names = [v.name for v in model.graph.input] + [t.name for t in model.graph.initializer]
    names += [name for other in model.graph.node for name in other.output if name]
    if node is None or not node.input or not names:
        return False
    node.input[int(random.integers(len(node.input)))] = random.choice(names)
    return True


def _outputs(model: onnx.ModelProto, random: Random) -> bool:
    """One more output, one less, or the output of another node."""
    node = _node(model, random)
    other = _node(model, random)
    if node is None or other is None or not node.output or not other.output:
        return False
    which = random.integers(3)
    if which == 0:
        node.output.append("more")
    elif which == 1:
        del node.output[0]
    else:
        node.output[0] = other.output[-1] if other is not node else "other"
    return True


def _lose_node(model: onnx.ModelProto, random: Random) -> bool:
    if not model.graph.node:
        return False
    del model.graph.node[int(random.integers(len(model.graph.node)))]
    return True


def _other_operator(model: onnx.ModelProto, random: Random) -> bool:
    node, other = _node(model, random), _node(model, random)
    if node is None or other is None:
        return False
    kinds = [other.op_type, "Nothing", "", "Reshape", "Gather", "Loop", "a\nb"]
    node.op_type = str(random.choice(kinds))
    return True


def _huge_dims(model: onnx.ModelProto, random: Random) -> bool:
    tensor = _initializer(model, random)
    if tensor is None:
        return False
    tensor.dims.append(1)
    tensor.dims[int(random.integers(len(tensor.dims)))] = int(random.choice(_HUGE))
    return True


def _odd_dims(model: onnx.ModelProto, random: Random) -> bool:
    tensor = _initializer(model, random)
    if tensor is None or not tensor.dims:
        return False
    tensor.dims[int(random.integers(len(tensor.dims)))] = int(random.choice(_ODD))
    return True


def _wrong_rank(model: onnx.ModelProto, random: Random) -> bool:
    """The same number of elements in another shape."""
    tensor = _initializer(model, random)
    if tensor is None:
        return False
    dims = list(tensor.dims)
    which = random.integers(4)
    if which == 0:
        dims = [int(np.prod(dims))]
    elif which == 1:
        dims.insert(int(random.integers(len(dims) + 1)), 1)
    elif which == 2:
        dims = dims[::-1]
    else:
        dims += [1] * 40
    del tensor.dims[:]
    tensor.dims.extend(dims)
    return True


def _wrong_dtype(model: onnx.ModelProto, random: Random) -> bool:
    tensor = _initializer(model, random)
    if tensor is None:
        return False
    tensor.data_type = int(random.choice([*range(30), 99, -1]))
    return True


def _wrong_size(model: onnx.ModelProto, random: Random) -> bool:
    """Data longer or shorter than its shape."""
    tensor = _initializer(model, random)
    if tensor is None or not tensor.raw_data:
        return False
    if random.integers(2):
        tensor.raw_data += b"\0" * int(random.integers(1, 9))
    else:
        tensor.raw_data = tensor.raw_data[: int(random.integers(len(tensor.raw_data)))]
    return True


def _odd_values(model: onnx.ModelProto, random: Random) -> bool:
    """An index or size becomes an unusual one."""
    tensors = [t for t in model.graph.initializer if t.data_type == TensorProto.INT64]
    tensors += [
        a.t
        for node in model.graph.node
        for a in node.attribute
        if a.HasField("t") and a.t.data_type == TensorProto.INT64
    ]
    if not tensors:
        return False
    tensor = tensors[int(random.integers(len(tensors)))]
    values = onnx.numpy_helper.to_array(tensor).copy()
    if not values.size:
        return False
    values.reshape(-1)[int(random.integers(values.size))] = random.choice(_ODD)
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    return True


def _wrong_attribute(model: onnx.ModelProto, random: Random) -> bool:
    """A value or a type becomes another one."""
    attribute = _attribute(model, random)
    if attribute is None:
        return False
    if random.integers(2):
        attribute.type = int(random.integers(0, 15))  # type: ignore[assignment]
        return True
    name = attribute.name
    values = (1, 1.5, "text", [1, 2], [0.5], ["a"], onnx.numpy_helper.from_array(np.zeros(2)))
    chosen = values[int(random.integers(len(values)))]
    attribute.CopyFrom(onnx.helper.make_attribute(name, chosen))
    return True


def _odd_attribute(model: onnx.ModelProto, random: Random) -> bool:
    """A number out of range, a list that is too long or too short, or another name."""
    attribute = _attribute(model, random)
    if attribute is None:
        return False
    if attribute.type == AttributeProto.INT:
        attribute.i = int(random.choice(_ODD))
    elif attribute.type == AttributeProto.INTS and attribute.ints:
        which = random.integers(3)
        if which == 0:
            attribute.ints[int(random.integers(len(attribute.ints)))] = int(random.choice(_ODD))
        elif which == 1:
            del attribute.ints[0]
        else:
            attribute.ints.extend([1] * int(random.integers(1, 9)))
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = float(random.choice([np.nan, np.inf, -1.0, 1e38]))
    elif attribute.type == AttributeProto.STRING:
        attribute.s = bytes(random.choice([b"", b"\xff\xfe", b"NOTHING"]))
    else:
        attribute.name = "nothing"
    return True


def _lose_attribute(model: onnx.ModelProto, random: Random) -> bool:
    nodes = [node for node in model.graph.node if node.attribute]
    if not nodes:
        return False
    node = nodes[int(random.integers(len(nodes)))]
    del node.attribute[int(random.integers(len(node.attribute)))]
    return True


def _wrong_input_type(model: onnx.ModelProto, random: Random) -> bool:
    """A declared input gets another element type or shape."""
    inputs = [v for v in model.graph.input if v.type.HasField("tensor_type")]
    if not inputs:
        return False
    kind = inputs[int(random.integers(len(inputs)))].type.tensor_type
    which = random.integers(3)
    if which == 0 or not kind.shape.dim:
        kind.elem_type = int(random.choice([*range(28), 99]))
    elif which == 1:
        del kind.shape.dim[0]
    else:
        dim = kind.shape.dim[int(random.integers(len(kind.shape.dim)))]
        dim.dim_value = int(random.choice(_ODD))
    return True


def _version(model: onnx.ModelProto, random: Random) -> bool:
    if not model.opset_import or random.integers(3) == 0:
        model.ir_version = int(random.choice([0, 1, 2, 99, -1]))
        return True
    model.opset_import[0].version = int(random.choice([-1, 0, 1, 6, 7, 13, 21, 28, 29, 1 << 40]))
    return True


def _twice(model: onnx.ModelProto, random: Random) -> bool:
    """A node, an initializer, an input or an output is duplicated."""
    graph = model.graph
    lists = [part for part in (graph.node, graph.initializer, graph.input, graph.output) if part]
    if not lists:
        return False
    part = lists[int(random.integers(len(lists)))]
    part.add().CopyFrom(part[0])  # type: ignore[attr-defined]
    return True


def _shuffle(model: onnx.ModelProto, random: Random) -> bool:
    """Nodes in random order, which readers that sort them accept."""
    nodes = list(model.graph.node)
    order = random.permutation(len(nodes))
    del model.graph.node[:]
    model.graph.node.extend(nodes[i] for i in order)
    return len(nodes) > 1


MODELS: dict[str, Callable[[onnx.ModelProto, Random], bool]] = {
    "cycle": _cycle, "missing input": _missing_input, "fewer inputs": _fewer_inputs,
    "more inputs": _more_inputs, "other inputs": _other_inputs, "outputs": _outputs,
    "lose node": _lose_node, "other operator": _other_operator, "huge dims": _huge_dims,
    "odd dims": _odd_dims, "wrong rank": _wrong_rank, "wrong dtype": _wrong_dtype,
    "wrong size": _wrong_size, "odd values": _odd_values, "wrong attribute": _wrong_attribute,
    "odd attribute": _odd_attribute, "lose attribute": _lose_attribute,
    "wrong input type": _wrong_input_type, "version": _version, "twice": _twice,
    "shuffle": _shuffle,
}  # fmt: skip
