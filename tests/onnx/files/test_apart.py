"""Models in memory apart from NumPy's: what is copied, and what stays."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.core.test_shared_memory import Bytes

from halfbyte.core.backends.shared import SharedMemory
from halfbyte.errors import FormatError
from halfbyte.formats.mapped import is_apart
from halfbyte.onnx.files import Model, open_onnx
from halfbyte.onnx.files.apart import without_numbers
from halfbyte.onnx.files.initializers import Initializers

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(0)
LARGE = RANDOM.standard_normal((40, 60)).astype(np.float32)
ARRAYS: dict[str, Array] = {
    "large": LARGE,
    "small": np.arange(7, dtype=np.int64),
    "halves": LARGE.astype(np.float16),
    "truths": LARGE > 0,
    "bytes": RANDOM.integers(0, 255, (9, 999), np.uint8),
}


@pytest.fixture
def memory() -> SharedMemory:
    return SharedMemory(Bytes(), 100)


def proto() -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in ARRAYS.items()]
    typed = helper.make_tensor("typed", TensorProto.FLOAT, LARGE.shape, LARGE.reshape(-1))
    nibbles = helper.make_tensor("nibbles", TensorProto.UINT4, [9000], np.arange(9000) % 16)
    shape = [TensorProto.FLOAT, [40, 60]]
    nodes = [helper.make_node("Add", ["x", "large"], ["y"], doc_string="d" * 100_000)]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", *shape)],
        [helper.make_tensor_value_info("y", *shape)], [*tensors, typed, nibbles],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def content(memory: SharedMemory, data: bytes | None = None) -> Any:
    """A file's bytes in that memory."""
    return memory.reach(np.frombuffer(data or proto().SerializeToString(), np.uint8).copy())


def opened(memory: SharedMemory) -> Model:
    return open_onnx(content(memory))


def test_values_are_those_of_the_file(memory: SharedMemory) -> None:
    initializers = opened(memory).graph.initializers
    here = open_onnx(proto().SerializeToString()).graph.initializers
    assert list(initializers) == list(here)
    for name, expected in here.items():
        np.testing.assert_array_equal(initializers[name], expected)
        assert initializers[name].dtype == expected.dtype
        assert not initializers[name].flags.writeable


def test_large_numbers_stay_where_they_are(memory: SharedMemory) -> None:
    data = content(memory)
    sizes = [array.nbytes for array in ARRAYS.values() if array.nbytes >= 1 << 12]
    left_out = len(data) - len(without_numbers(data, Path("model.onnx")))
    assert 0 < sum(sizes) - left_out < 64 * len(sizes)
    model = open_onnx(data)
    initializers = model.graph.initializers
    assert isinstance(initializers, Initializers)
    stored = {name for name, value in initializers.stored.items() if is_apart(value)}
    assert stored == {"large", "halves", "bytes", "typed", "nibbles"}
    begin = data.address
    assert begin < initializers.stored["large"].address < begin + len(data)


def test_a_file_by_its_path(memory: SharedMemory, tmp_path: Path) -> None:
    path, external = tmp_path / "model.onnx", tmp_path / "external.onnx"
    onnx.save(proto(), path)
    onnx.save(proto(), external, save_as_external_data=True, location="numbers")
    for file in (path, external):
        initializers = open_onnx(file, memory=memory).graph.initializers
        assert isinstance(initializers, Initializers)
        assert is_apart(initializers.stored["large"])
        np.testing.assert_array_equal(initializers["large"], LARGE)


def test_a_copy_is_known_while_it_exists(memory: SharedMemory) -> None:
    initializers = opened(memory).graph.initializers
    assert isinstance(initializers, Initializers)
    copy = initializers["large"]
    assert initializers["large"] is copy
    assert initializers.name_of(copy) == "large"
    assert initializers.name_of(LARGE) is None
    initializers["large"] = LARGE
    assert initializers.name_of(copy) is None
    assert initializers.name_of(LARGE) == "large"
    assert initializers["large"] is LARGE


def test_copies_are_freed(memory: SharedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfbyte.onnx.files.initializers._RECENT", 4 * LARGE.nbytes)
    initializers = Initializers(memory)
    for index in range(9):
        initializers[str(index)] = LARGE + index
    for index in range(9):
        np.testing.assert_array_equal(initializers[str(index)], LARGE + index)
    gc.collect()
    assert list(initializers._copies) == ["5", "6", "7", "8"]
    before = memory.allocated
    del initializers["8"]
    gc.collect()
    assert before - memory.allocated >= LARGE.nbytes


def cut(data: bytes) -> bytes:
    return data[:-1]


def no_model(data: bytes) -> bytes:
    return b"\x00" * len(data)


@pytest.mark.parametrize("damage", [cut, no_model])
def test_damage_is_refused(damage: Callable[[bytes], bytes], memory: SharedMemory) -> None:
    data = damage(proto().SerializeToString())
    with pytest.raises(FormatError) as here:
        open_onnx(data)
    with pytest.raises(FormatError) as there:
        open_onnx(content(memory, data))
    assert str(there.value) == str(here.value)


def test_every_cut_is_refused(memory: SharedMemory) -> None:
    data = proto().SerializeToString()
    for end in range(1, len(data), 997):
        with pytest.raises(FormatError):
            open_onnx(content(memory, data[:end]))


def test_a_wrong_size(memory: SharedMemory) -> None:
    model = proto()
    model.graph.initializer[0].dims[0] = 41
    with pytest.raises(FormatError, match=r"'large'.*expected 9840 bytes.*9600"):
        open_onnx(content(memory, model.SerializeToString()))
