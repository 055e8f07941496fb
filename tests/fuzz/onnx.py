"""ONNX: models changed as messages and as bytes, some of them with external data."""

from __future__ import annotations

import lzma
import random
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from onnx import TensorProto, load_from_string
from tests.fuzz.mutators import mutate_bytes, odd_integer
from tests.onnx.mutations import mutated
from tests.onnx.session.mutants import attention, feeds, network

import halfbyte
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.session import RunOptions

NODES = Path(__file__).with_name("onnx-nodes.xz")  # one of ONNX's node tests per operator
_TWO = b"two files"  # then the model's length, the model, and the external data
_CHECKS = 20_000  # steps of a preparation and its run, after which endless loops are ended


@cache
def corpus() -> list[bytes]:
    """Networks of many operators, with and without external data, and single nodes."""
    own = [network(), attention()]
    packed, nodes = lzma.decompress(NODES.read_bytes()), []
    while packed:
        end = 2 + int.from_bytes(packed[:2], "little")
        nodes.append(packed[2:end])
        packed = packed[end:]
    return [*own, *map(_external, own), *nodes, *own * (len(nodes) // 4)]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Change a node, a tensor or an attribute; where data is stored; or any bytes."""
    numbers = np.random.default_rng(chance.getrandbits(64))
    if not data.startswith(_TWO):
        return mutated(data, numbers)
    model, external = _parts(data)
    kind = chance.randrange(4)
    if kind == 0:
        return _joined(model, mutate_bytes(external, chance))
    if kind == 1:
        return _joined(mutated(model, numbers), external)
    try:
        proto = load_from_string(model)
    except Exception:
        return _joined(mutate_bytes(model, chance), external)
    tensors = [t for t in proto.graph.initializer if t.external_data]
    if not tensors:
        return _joined(mutate_bytes(model, chance), external)
    entry = chance.choice(chance.choice(tensors).external_data)
    if entry.key == "location":
        entry.value = chance.choice(
            ["../data", "/etc/hostname", "", ".", "data\n", "a" * 2000, "x"]
        )
    else:
        entry.value = chance.choice([str(odd_integer(chance)), "", "1e3", "0x10", " 1", "٣"])
    return _joined(proto.SerializeToString(), external)


def target(data: bytes) -> None:
    """Open the model and run it on values that fit its inputs."""
    options = halfbyte.SessionOptions()
    options.intra_op_num_threads = 1
    if not data.startswith(_TWO):
        _run(data, options)
        return
    model, external = _parts(data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(model)
        path.with_name("data").write_bytes(external)
        _run(path, options)


class _Bounded(RunOptions):
    """Ends a run after `_CHECKS` checks."""

    def __init__(self) -> None:
        self._checks = 0

    @property
    def terminate(self) -> bool:  # type: ignore[override]
        """Whether to end."""
        self._checks += 1
        return self._checks > _CHECKS


def _run(model: bytes | Path, options: halfbyte.SessionOptions) -> None:
    with halfbyte.InferenceSession(model, options) as session:
        inputs = feeds(session)
        if inputs is None:
            raise HalfbyteError("inputs of more elements than are worth a test")
        session.run(None, inputs, _Bounded())


def _external(model: bytes) -> bytes:
    """The same model with its initializers in another file."""
    proto, external = load_from_string(model), b""
    for tensor in proto.graph.initializer:
        if tensor.raw_data:
            location = {"location": "data", "offset": len(external), "length": len(tensor.raw_data)}
            external += tensor.raw_data
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in location.items():
                tensor.external_data.add(key=key, value=str(value))
    return _joined(proto.SerializeToString(), external)


def _joined(model: bytes, external: bytes) -> bytes:
    return _TWO + len(model).to_bytes(4, "little") + model + external


def _parts(data: bytes) -> tuple[bytes, bytes]:
    start = len(_TWO) + 4
    length = int.from_bytes(data[len(_TWO) : start], "little")
    return data[start : start + length], data[start + length :]


def _write_nodes() -> None:
    """Write the smallest of ONNX's tests of each operator."""
    from tests.onnx.node_cases import node_cases

    nodes: dict[str, bytes] = {}
    for case in node_cases():
        data = case.proto.SerializeToString() if case.kind == "node" else b""
        if data and len(data) < len(nodes.get(case.operator, bytes(1000))):
            nodes[case.operator] = data
    packed = b"".join(
        len(nodes[name]).to_bytes(2, "little") + nodes[name] for name in sorted(nodes)
    )
    NODES.write_bytes(lzma.compress(packed, preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    _write_nodes()
