"""Packed weights: a permutation, made in place or not, that changes no result."""

from __future__ import annotations

import dataclasses
import gc
import math
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.support import wasm
from tests.support.tools import load_tool

import halfbyte
from halfbyte.core import packing
from halfbyte.core.backends.libraries import library
from halfbyte.core.backends.library import Library
from halfbyte.core.backends.native import Kernels
from halfbyte.core.passes import optimize
from halfbyte.errors import HalfbyteError
from halfbyte.formats import reading
from halfbyte.formats.derived import DerivedTensor
from halfbyte.quantize import quantize_file
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text import footprint
from halfbyte.text.loading import load_bytes
from halfbyte.text.model import LanguageModel
from halfbyte.text.opening import open_bytes, open_model
from halfbyte.text.planning import Settings, capture_model, plan
from halfbyte.text.tokenizers import from_metadata
from halfbyte.weights import BY_DTYPE, FORMATS, Packed, Tensor
from halfbyte.weights.grids import Grid

IDS = [1, *range(300, 340)]
GRIDS = [f for f in FORMATS.values() if issubclass(f, Grid)]
LAYOUTS = {f.name: f for f in BY_DTYPE.values() if issubclass(f, Packed)}


@pytest.fixture(scope="module", params=["int4", "int8", "Q5_1", "Q5_0", "Q4_K_M", "Q5_K_M"])
def path(
    request: pytest.FixtureRequest,
    storyteller: Path,
    repository: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    target = tmp_path_factory.mktemp("packing") / f"{request.param}.gguf"
    if request.param.endswith("_M"):
        load_tool(repository, "make_model").make_model(target, "tiny-256", request.param)
    else:
        quantize_file(storyteller, request.param, target)
    return target


def some_rows(layout: type[Packed], m: int, k: int) -> npt.NDArray[np.uint8]:
    """Random bytes, all of which are valid blocks."""
    random = np.random.default_rng(m)
    return random.integers(0, 256, (m, layout.row_bytes(k)), np.uint8)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_is_the_one_described(name: str) -> None:
    """Bit for bit, as in the docstring: scales of sixteen rows, then four columns at a time."""
    layout = LAYOUTS[name]
    rows = some_rows(layout, 35, 512)
    packed, blocks = layout.pack(rows), rows.view(layout.layout)
    quantized = layout.get_quantized(blocks)
    size, count = 16 * layout.block_bytes, 512 // layout.block
    for row, block in ((0, 0), (5, 1), (15, 1), (16, 0), (31, 1)):
        place, r = (row // 16 * count + block) * size, row % 16
        for field in sorted({*blocks.dtype.names} - {"qs", "qh", "ql", "hmask"}):
            for scale in blocks[field][row, block].reshape(-1):
                scale_bytes = packed[place + scale.nbytes * r :][: scale.nbytes]
                assert scale_bytes.tobytes() == scale.tobytes()
                place += 16 * scale.nbytes
        for column in range(layout.block):
            b, c = divmod(column, 32)
            fours = packed[place + 64 * layout.bits * b + 4 * r + c % 4 :: 64]
            four, shift = c % 16 // 4, c // 16 * 4
            if layout.bits == 8:
                q = fours[c // 4]
            elif layout.bits == 3:
                bits = [fours[i] >> (shift + 3) & 1 for i in range(3)]
                q = bits[0] + 2 * bits[1] + 4 * bits[2] if four == 3 else fours[four] >> shift & 7
            elif layout.bits == 2:
                q = fours[four % 2] >> (shift + four // 2 * 2) & 3
            else:
                q = fours[four] >> shift & 15
            if layout.bits == 5:
                q |= (fours[4] >> (c // 4) & 1) << 4
            if layout.bits == 6:
                q |= (fours[4 + c // 16] >> (2 * (c % 16 // 4)) & 3) << 4
            assert q == quantized[row, block, column], (row, block, column)
    np.testing.assert_array_equal(packed[2 * count * size :], rows[32:].reshape(-1))
    np.testing.assert_array_equal(layout.rows(packed, 512), rows)


def tables() -> list[tuple[Library, str]]:
    mine = [(library(), isa) for isa in library().instruction_sets]
    return mine + [(wasm.library(isa, 1 << 20), isa) for isa in wasm.FILES]


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("m", [1, 16, 35])
def test_kernel_packs_as_defined(name: str, m: int, native_backends: list[str]) -> None:
    assert native_backends
    layout = LAYOUTS[name]
    rows = some_rows(layout, m, 512)
    expected = layout.pack(rows)
    for table, isa in tables():
        reach, kernels = table.memory.reach, Kernels(isa, library=table)
        source, target = reach(rows.copy()), reach(np.zeros_like(expected))
        scratch = reach(np.zeros(16 * rows.shape[1], np.uint8))
        pack = f"pack_{name.lower().removesuffix('_r16')}"
        kernels.call(pack, y=target, scratch=scratch, w=source, k=512, m=m)
        np.testing.assert_array_equal(target, expected, err_msg=isa)
        np.testing.assert_array_equal(source, rows)
        kernels.call(pack, y=source, scratch=scratch, w=source, k=512, m=m)
        np.testing.assert_array_equal(source.reshape(-1), expected, err_msg=isa)


@pytest.mark.parametrize("kind", GRIDS)
def test_kernel_converts_as_defined(kind: type[Grid], native_backends: list[str]) -> None:
    assert native_backends
    rows = np.random.default_rng(1).integers(0, 256, (5, kind.row_bytes(512)), np.uint8)
    expected, source = kind.converted(rows), Tensor("w", kind, (5, 512), rows.reshape(-1))
    for isa in library().instruction_sets:
        kernels = Kernels(isa)
        found = packing._converted(source, kind, expected.size, kernels)
        np.testing.assert_array_equal(found, expected.reshape(-1), err_msg=isa)


@pytest.mark.parametrize("name", LAYOUTS)
def test_threads_pack_as_one_does(name: str, native_backends: list[str]) -> None:
    """Each thread packs a part of the rows into separate memory."""
    layout = LAYOUTS[name]
    rows = some_rows(layout, 16 * 64 + 5, 256)
    expected = layout.pack(rows)
    kernels = Kernels(native_backends[0].removeprefix("native-"), threads=3)
    for _ in range(20):
        packed, scratch = np.zeros_like(expected), np.zeros(16 * rows.shape[1], np.uint8)
        pack = f"pack_{name.lower().removesuffix('_r16')}"
        kernels.call(pack, y=packed, scratch=scratch, w=rows, k=256, m=len(rows))
        np.testing.assert_array_equal(packed, expected)
    kernels.close()


def test_results_are_the_same_to_the_bit(path: Path) -> None:
    with halfbyte.load(path, weights="mapped") as mapped, halfbyte.load(path) as packed:
        np.testing.assert_array_equal(packed.logits(IDS), mapped.logits(IDS))
        names = {i.operator.kernel(i) for i in packed.program.instructions}
        products = [n for n in names if n.startswith("matmul")]
        assert products
        assert all(n.startswith("matmul_int8") and n.endswith("_r16") for n in products)
        for name, tensor in mapped.file.tensors.items():
            np.testing.assert_array_equal(packed.weights[name].rows, tensor.rows)
        assert not any(issubclass(t.format, Packed) for t in mapped.weights.values())


def test_own_bytes_are_packed_in_place(path: Path) -> None:
    content = path.read_bytes()
    data = np.frombuffer(content, np.uint8).copy()
    with load_bytes(data) as model:
        want = model.logits(IDS).copy()
        assert data.tobytes() == content, "not ours: not changed"
    with load_bytes(data, own=True) as model:
        packed = [t for t in model.weights.values() if issubclass(t.format, Packed)]
        assert packed
        assert all(np.shares_memory(t.data, data) for t in packed)
        np.testing.assert_array_equal(model.logits(IDS), want)


def test_packing_changes_neither_program_nor_file(path: Path) -> None:
    """Mapped weights are copied: the plan still runs, with the same results."""
    file = open_model(path)
    planned = plan(file, Settings(weights="packed"))
    before = {name: tensor.data.tobytes() for name, tensor in file.tensors.items()}
    kept = [(b, b.dtype, b.value) for b in planned.program.buffers]
    packed = packing.pack(planned.program, planned.to_pack, file, 2)
    packed = packing.copy(packed, planned.to_copy, file)
    assert [(b, b.dtype, b.value) for b in planned.program.buffers] == kept
    assert {name: tensor.data.tobytes() for name, tensor in file.tensors.items()} == before
    assert any(issubclass(t.format, Packed) for t in packed.tensors.values())
    assert (packed.places, packed.arena_bytes) == (
        planned.program.places, planned.program.arena_bytes
    )  # fmt: skip
    tokenizer = from_metadata(file)
    logits = [
        LanguageModel(file, tokenizer, program, "native", 1).logits(IDS)
        for program in (planned.program, packed)
    ]
    np.testing.assert_array_equal(*logits)


def test_weights_packed_in_place_are_given_away(path: Path) -> None:
    """Tensors that held them raise an error instead of returning permuted bytes."""
    file = open_bytes(np.frombuffer(path.read_bytes(), np.uint8).copy(), "m.gguf", own=True)
    planned = plan(file, Settings(weights="packed"))
    packed = packing.pack(planned.program, planned.to_pack, file, 1)
    for buffer in planned.to_pack:
        assert isinstance(buffer.value, Tensor)
        name = buffer.value.name
        for tensor in (buffer.value, file.tensors[name]):
            with pytest.raises(HalfbyteError, match=rf"tensor '{name}': its bytes were given away"):
                tensor.decode()
        assert np.isfinite(packed.tensors[name].decode()).all()
    for weights in ("auto", "packed"):  # a plan reads no bytes
        assert plan(file, Settings(weights=weights)).memory == planned.memory
    others = file.tensors.keys() - {b.name for b in planned.to_pack}
    assert others
    assert all(np.isfinite(file.tensors[name].decode()).all() for name in others)


@pytest.mark.parametrize("own", [True, False])
def test_closed_models_leave_nothing_to_the_garbage_collector(path: Path, own: bool) -> None:
    gc.collect()
    gc.disable()
    try:
        data = np.frombuffer(path.read_bytes(), np.uint8).copy()
        model = load_bytes(data, own=True) if own else halfbyte.load(path)
        packed = [t for t in model.weights.values() if issubclass(t.format, Packed)]
        arrays = [weakref.ref(tensor.data) for tensor in packed]
        del packed
        model.logits(IDS)
        assert arrays
        assert all(array() is not None for array in arrays)
        model.close()
        assert [array() for array in arrays] == [None] * len(arrays)
    finally:
        gc.enable()


def test_a_part_takes_the_bytes_of_the_whole() -> None:
    data = np.arange(4 * 32, dtype=np.float32)
    whole = Tensor("w", FORMATS["F32"], (4, 32), data.view(np.uint8))
    first, second = whole.part(0, 1), whole.part(1, 4)
    assert (first.name, second.name) == ("w[0:1]", "w[1:4]")
    assert np.shares_memory(first.release(), data)
    for given in (first, whole):
        with pytest.raises(HalfbyteError, match="its bytes were given away"):
            given.take(0, 1)
    np.testing.assert_array_equal(second.decode().reshape(-1), data[32:])
    with pytest.raises(AttributeError):
        _ = first.dat  # type: ignore[attr-defined]


def test_bytes_of_a_file_cannot_be_released(path: Path) -> None:
    tensor = next(iter(open_model(path).tensors.values()))
    with pytest.raises(HalfbyteError, match="expected bytes in memory, found a file's"):
        tensor.release()
    assert len(tensor.data) == tensor.nbytes


def test_derived_tensors_can_be_computed_again() -> None:
    rows = np.arange(4 * 32, dtype=np.float32).reshape(4, 32)
    whole = DerivedTensor(
        "w",
        FORMATS["F32"],
        (4, 32),
        lambda first, n: FORMATS["F32"].encode(rows[first : first + n]),
    )
    part = whole.part(1, 3)
    np.testing.assert_array_equal(part.decode(), rows[1:3])
    for tensor, expected in ((part, rows[1:3]), (whole, rows)):
        data = tensor.release()
        data[:] = 0
        np.testing.assert_array_equal(tensor.decode(), expected)


def test_computed_matrices_are_copies(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are memory of the process, not of the file, also where nothing is packed."""
    file = open_model(path)
    name = "blk.0.ffn_down.weight"
    stored = file.tensors[name]
    asked: list[int] = []

    def make(first: int, count: int) -> npt.NDArray[np.uint8]:
        asked.append(count)
        return FORMATS["F32"].encode(stored.format.decode(stored.take(first, count)))

    computed = DerivedTensor(name, FORMATS["F32"], stored.shape, make)
    file = dataclasses.replace(file, tensors={**file.tensors, name: computed})
    planned = plan(file, Settings(context=64, weights="mapped"))
    [buffer] = planned.to_copy
    assert buffer.value is computed
    assert planned.memory["weights (copied)"] == computed.nbytes
    assert planned.memory["weights (mapped)"] < sum(t.nbytes for t in file.tensors.values())
    monkeypatch.setattr(packing, "_SLICE", 1 << 12)
    copied = packing.copy(planned.program, [buffer], file)
    [value] = [b.value for b in copied.buffers if b.name == buffer.name]
    assert type(value) is Tensor
    np.testing.assert_array_equal(value.data, computed.data)
    assert max(asked[:-1]) * computed.format.row_bytes(computed.columns) <= 1 << 12


def test_computed_rows_are_read_some_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_SLICE", 1 << 12)
    rows = np.arange(64 * 256, dtype=np.float32).reshape(64, 256)
    asked: list[int] = []

    def make(first: int, count: int) -> npt.NDArray[np.uint8]:
        asked.append(count)
        return FORMATS["F32"].encode(rows[first : first + count])

    tensor = DerivedTensor("w", FORMATS["F32"], rows.shape, make)
    found = np.empty((9, 256), np.float32)
    reader = reading.Reader(open_model(path))
    reader.begin([reading.Rows(tensor, 3, 9)], [found])
    reader.wait()
    reader.close()
    np.testing.assert_array_equal(found, rows[3:12])
    assert asked == [4, 4, 1]


def test_float_products_keep_the_file_s_order(path: Path) -> None:
    """Only integer products take packed rows."""
    with halfbyte.load(path, activations="float") as model:
        assert not any(issubclass(t.format, Packed) for t in model.weights.values())


def test_the_plan_decides(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = open_model(path)
    program = optimize(capture_model(file))
    chosen = packing.to_pack(program)
    assert sum(b.nbytes for b in chosen) > 0.9 * sum(t.data.nbytes for t in file.tensors.values())
    assert packing.to_pack(program, "mapped") == []
    needed = sum(program.bytes_by_kind().values())
    monkeypatch.setattr(packing, "machine_bytes", lambda: 2 * needed - 2)
    assert packing.to_pack(program) == []
    monkeypatch.setattr(packing, "machine_bytes", lambda: 2 * needed)
    assert packing.to_pack(program) == chosen
    assert packing.to_pack(program, "packed") == chosen
    with pytest.raises(HalfbyteError, match="weights 'always': expected one of"):
        halfbyte.load(path, weights="always")


def test_converted_weights_are_beside_the_file(repository: Path, tmp_path: Path) -> None:
    """The plan counts them at their size in memory, in a tab beside the whole file."""
    load_tool(repository, "make_model").make_model(tmp_path / "m.gguf", "tiny-256", "Q4_K")
    model = open_model(tmp_path / "m.gguf")
    few = {t.name for t in model.tensors.values() if t.format is FORMATS["Q4_K"]}
    tensors = []
    for t in model.tensors.values():
        data = np.zeros(t.row_count * FORMATS["IQ2_XS"].row_bytes(t.columns), np.uint8)
        tensors.append(Tensor(t.name, FORMATS["IQ2_XS"], t.shape, data) if t.name in few else t)
    write_gguf(tmp_path / "few.gguf", model.metadata, tensors)
    file = open_model(tmp_path / "few.gguf")
    planned = plan(file, Settings())
    weights = sum(math.prod(t.shape) for t in tensors if t.name in few)
    assert planned.memory["weights (converted)"] == weights * 116 // 256
    others = sum(t.nbytes for t in tensors if t.name not in few and len(t.shape) > 1)
    assert planned.memory["weights (packed)"] == others
    stored = weights * 74 // 256
    assert footprint.bytes_in_file(planned.program) == stored + sum(
        t.nbytes for t in tensors if t.name not in few
    )
    assert footprint.in_tab(planned.memory, 1)["weights (converted)"] == weights * 116 // 256
    with halfbyte.load(tmp_path / "few.gguf") as loaded:
        held = [b for b in loaded.program.buffers if b.dtype == "codes_3_r16"]
        assert sum(b.nbytes for b in held) == weights * 116 // 256


def test_formats_of_files_have_layouts() -> None:
    memory_only = {f.in_memory.name for f in FORMATS.values() if f.in_memory}
    assert {name.removesuffix("_R16") for name in LAYOUTS} < {*FORMATS} | memory_only


def test_pages_are_given_back_while_a_matrix_is_copied(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise all of it would be resident twice."""
    monkeypatch.setattr(packing, "_SLICE", 1 << 12)
    file = open_model(path)
    planned = plan(file, Settings(context=64, weights="streamed"))
    buffer = max(planned.to_copy, key=lambda b: b.nbytes)
    forget, given_back = file.forget, []
    monkeypatch.setattr(type(file), "forget", lambda _: given_back.append(forget()))
    copied = packing.copy(planned.program, [buffer], file)
    [value] = [b.value for b in copied.buffers if b.name == buffer.name]
    np.testing.assert_array_equal(value.data, buffer.value.data)
    assert len(given_back) == -(-buffer.nbytes // (1 << 12))


def test_pages_are_given_back_after_each_converted_matrix(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise all of the file would be resident beside all that was made of it."""
    load_tool(repository, "make_model").make_model(tmp_path / "m.gguf", "tiny-256", "TQ2_0")
    file = open_model(tmp_path / "m.gguf")
    planned = plan(file, Settings(weights="packed"))
    made = footprint.converted(planned.program)
    events: list[str] = []
    taken, forget = packing._taken, file.forget
    monkeypatch.setattr(packing, "_taken", lambda *a: [taken(*a), events.append("made")][0])
    monkeypatch.setattr(type(file), "forget", lambda _: [forget(), events.append("forgotten")][0])
    packing.pack(planned.program, made, file, threads=1)
    assert len(made) > 2
    assert events[: 2 * len(made)] == ["made", "forgotten"] * len(made)
