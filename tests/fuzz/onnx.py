"""ONNX: models changed as messages and as bytes; some have their data in a file beside them."""

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

NODES = Path(__file__).with_name("onnx-nodes.xz")  # of ONNX's node tests, one an operator
_TWO = b"two files"  # then the model's length, the model, and the data beside it
_CHECKS = 20_000  # steps of a preparation and its run: a loop without end is ended


@cache
def corpus() -> list[bytes]:
    """Networks with a little of everything, alone and with external data, and single nodes."""
    own = [network(), attention()]
    packed, nodes = lzma.decompress(NODES.read_bytes()), []
    while packed:
        end = 2 + int.from_bytes(packed[:2], "little")
        nodes.append(packed[2:end])
        packed = packed[end:]
    return [*own, *map(_external, own), *nodes, *own * (len(nodes) // 4)]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """A change to a node, a tensor, an attribute; to where data lies; to any bytes."""
    numbers = np.random.default_rng(chance.getrandbits(64))
    if not data.startswith(_TWO):
        return mutated(data, numbers)
    model, beside = _parts(data)
    kind = chance.randrange(4)
    if kind == 0:
        return _joined(model, mutate_bytes(beside, chance))
    if kind == 1:
        return _joined(mutated(model, numbers), beside)
    try:
        proto = load_from_string(model)
    except Exception:
        return _joined(mutate_bytes(model, chance), beside)
    tensors = [t for t in proto.graph.initializer if t.external_data]
    if not tensors:
        return _joined(mutate_bytes(model, chance), beside)
    entry = chance.choice(chance.choice(tensors).external_data)
    if entry.key == "location":
        entry.value = chance.choice(
            ["../data", "/etc/hostname", "", ".", "data\n", "a" * 2000, "x"]
        )
    else:
        entry.value = chance.choice([str(odd_integer(chance)), "", "1e3", "0x10", " 1", "٣"])
    return _joined(proto.SerializeToString(), beside)


def target(data: bytes) -> None:
    """Open it and run it on something that fits its inputs."""
    options = halfbyte.SessionOptions()
    options.intra_op_num_threads = 1
    if not data.startswith(_TWO):
        _run(data, options)
        return
    model, beside = _parts(data)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(model)
        path.with_name("data").write_bytes(beside)
        _run(path, options)


class _Bounded(RunOptions):
    """Ends a run after so many looks at it."""

    def __init__(self) -> None:
        self._looks = 0

    @property
    def terminate(self) -> bool:  # type: ignore[override]
        """Whether to end."""
        self._looks += 1
        return self._looks > _CHECKS


def _run(model: bytes | Path, options: halfbyte.SessionOptions) -> None:
    with halfbyte.InferenceSession(model, options) as session:
        given = feeds(session)
        if given is None:
            raise HalfbyteError("inputs of more elements than are worth a test")
        session.run(None, given, _Bounded())


def _external(model: bytes) -> bytes:
    """The same with its initializers' numbers in another file."""
    proto, beside = load_from_string(model), b""
    for tensor in proto.graph.initializer:
        if tensor.raw_data:
            said = {"location": "data", "offset": len(beside), "length": len(tensor.raw_data)}
            beside += tensor.raw_data
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in said.items():
                tensor.external_data.add(key=key, value=str(value))
    return _joined(proto.SerializeToString(), beside)


def _joined(model: bytes, beside: bytes) -> bytes:
    return _TWO + len(model).to_bytes(4, "little") + model + beside


def _parts(data: bytes) -> tuple[bytes, bytes]:
    start = len(_TWO) + 4
    length = int.from_bytes(data[len(_TWO) : start], "little")
    return data[start : start + length], data[start + length :]


def _write_nodes() -> None:
    """Of each operator the smallest test that ONNX has."""
    from tests.onnx.node_cases import node_cases

    found: dict[str, bytes] = {}
    for case in node_cases():
        data = case.proto.SerializeToString() if case.kind == "node" else b""
        if data and len(data) < len(found.get(case.operator, bytes(1000))):
            found[case.operator] = data
    packed = b"".join(
        len(found[name]).to_bytes(2, "little") + found[name] for name in sorted(found)
    )
    NODES.write_bytes(lzma.compress(packed, preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    _write_nodes()
