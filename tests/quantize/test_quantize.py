"""Whole files: types, bytes, reports, and that a model stays the same function."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from tests.formats.files import DIM, model_metadata, weights, write_v2
from tests.formats.files import tensor as made_tensor

import halfbyte
from halfbyte.cli import quantize as main
from halfbyte.errors import HalfbyteError
from halfbyte.formats.grouped import Groups
from halfbyte.quantize import encode, quantize_file
from halfbyte.quantize.encode import Codec
from halfbyte.quantize.equalize import exponents, find_scales
from halfbyte.quantize.gguf_writer import GGUFWriter, TensorInfo, write_gguf
from halfbyte.quantize.lattice import NOTE
from halfbyte.quantize.recipe import norm_groups
from halfbyte.quantize.scale_search import search
from halfbyte.text.opening import open_model
from halfbyte.weights import F32, Q8_0, Tensor

GGUF_TYPES = {
    "F16": gguf.GGMLQuantizationType.F16,
    "BF16": gguf.GGMLQuantizationType.BF16,
    "Q8_0": gguf.GGMLQuantizationType.Q8_0,
    "Q4_0": gguf.GGMLQuantizationType.Q4_0,
}


def write_model(path: Path, tensors: dict[str, npt.NDArray[np.float32]]) -> Path:
    """A GGUF file of float32 tensors that cannot run."""
    stored = [Tensor(n, F32, v.shape, v.reshape(-1).view(np.uint8)) for n, v in tensors.items()]
    write_gguf(path, {"general.architecture": "llama"}, stored)
    return path


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    """Ties, zeros, extremes in a matrix; a vector."""
    x = np.random.default_rng(0).standard_normal((64, 96), np.float32)
    x[0] = 0
    x[1, :32] = -0.0
    x[2] = np.round(x[2] * 2) / 2
    x[3, :32] = np.arange(-16, 16) / 2
    x[4, :5], x[4, 5:32] = [127, 0.5, -1.5, 2.5, 126.5], 0
    x[5, 3], x[5, 9] = 9, -9
    x[6] *= 1e-7
    return write_model(tmp_path / "edges.gguf", {"a.weight": x, "a.bias": x[7].copy()})


@pytest.mark.parametrize(
    ("kind", "name"), [("int4", "Q4_0"), ("int8", "Q8_0"), ("fp16", "F16"), ("bf16", "BF16")]
)
def test_plain_rounding_is_that_of_gguf(edges: Path, kind: str, name: str) -> None:
    report = quantize_file(edges, kind, rtn=True)
    target = edges.with_name(f"edges-{kind}.gguf")
    assert report.output == str(target)
    x = open_model(edges).tensors["a.weight"].decode()
    reader = gguf.GGUFReader(target)
    stored = {t.name: t for t in reader.tensors}
    assert stored["a.weight"].tensor_type == GGUF_TYPES[name]
    want = gguf.quants.quantize(x, GGUF_TYPES[name])
    np.testing.assert_array_equal(stored["a.weight"].data.view(np.uint8), want.view(np.uint8))
    assert stored["a.bias"].tensor_type == gguf.GGMLQuantizationType.F32


def test_reported_noise_is_that_of_the_file(edges: Path) -> None:
    report = quantize_file(edges, "int4", rtn=True)
    x = open_model(edges).tensors["a.weight"].decode().astype(np.float64)
    y = open_model(report.output).tensors["a.weight"].decode()
    snr = 10 * np.log10((x**2).sum() / ((x - y) ** 2).sum())
    row = next(row for row in report.rows if row.name == "a.weight")
    assert row.snr_db == pytest.approx(snr, abs=0.01)
    assert row.search_gain_db is None
    searched = next(r for r in quantize_file(edges, "int4").rows if r.name == "a.weight")
    assert searched.snr_db is not None
    assert searched.search_gain_db is not None
    assert searched.snr_db > snr
    assert searched.search_gain_db == pytest.approx(searched.snr_db - snr, abs=0.01)


def types(path: Path | str) -> dict[str, str]:
    return {name: t.format.name for name, t in open_model(path).tensors.items()}


def test_recipe(storyteller: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.gguf"
    quantize_file(storyteller, "int4", target)
    formats = types(target)
    assert {name for name, t in formats.items() if t == "Q8_0"} == {"token_embd.weight"}
    assert {name for name, t in formats.items() if t == "F32"} == {
        n for n in formats if "norm" in n
    }
    assert {t for name, t in formats.items() if "ffn_up" in name or "attn_q." in name} == {"Q4_0"}
    quantize_file(storyteller, "int4", target, pure=True)
    assert "Q8_0" not in types(target).values()
    keep = [("blk.*.ffn_down.weight", "int8"), ("blk.1.*", "F16"), ("blk.1.attn_norm.*", "F32")]
    quantize_file(storyteller, "int4", target, keep=keep)
    formats = types(target)
    assert formats["blk.0.ffn_down.weight"] == "Q8_0"
    assert formats["blk.1.ffn_down.weight"] == "F16"
    assert formats["blk.1.attn_norm.weight"] == "F32"
    metadata = open_model(target).metadata
    assert metadata["general.file_type"] == 2
    assert metadata["general.quantization_version"] == 2


def test_wider_types_where_one_does_not_fit(tmp_path: Path) -> None:
    x = np.ones((4, 64), np.float32)
    large, huge = x.copy(), x.copy()
    large[1, 1], huge[1, 1] = 600_000, 1e38
    path = write_model(
        tmp_path / "m.gguf", {"odd": x[:, :50].copy(), "large": large, "huge": huge, "fine": x}
    )
    report = quantize_file(path, "int4")
    assert types(report.output) == {"odd": "F16", "large": "Q8_0", "huge": "F32", "fine": "Q4_0"}
    notes = {row.name: row.note for row in report.rows}
    assert notes["odd"] == "50 columns, no multiple of Q4_0's 32"
    assert notes["large"] == "values up to 6e+05 do not fit Q4_0"
    assert notes["fine"] == NOTE  # all ones
    assert "huge: F32: values up to 1e+38" in report.table()
    assert {p.name for p in tmp_path.iterdir()} == {"m.gguf", "m-int4.gguf"}
    assert types(quantize_file(path, "bf16").output)["huge"] == "BF16"
    decoded = open_model(report.output).tensors["large"].decode()
    assert np.isfinite(decoded).all()


def test_progress(storyteller: Path, tmp_path: Path) -> None:
    """It never goes back and completes only at the end, also if a value needs a second pass."""
    x = np.ones((300, 64), np.float32)
    x[299, 1] = 1e6
    large = write_model(tmp_path / "large.gguf", {"fine": x / 1e6, "large": x})
    for path, kind in ((storyteller, "int4"), (storyteller, "fp16"), (large, "int4")):
        seen: list[tuple[int, int]] = []
        quantize_file(path, kind, tmp_path / "o", progress=lambda *now, s=seen: s.append(now))
        done = [now[0] for now in seen]
        assert done == sorted(done)
        assert [now for now, (d, total) in enumerate(seen) if d == total] == [len(seen) - 1]
    assert types(tmp_path / "o") == {"fine": "Q4_0", "large": "Q8_0"}


def test_requantizing_int8(storyteller: Path, tmp_path: Path) -> None:
    middle, target = tmp_path / "int8.gguf", tmp_path / "int4.gguf"
    quantize_file(storyteller, "int8", middle)
    quantize_file(middle, "int4", target)
    assert types(target)["blk.0.ffn_up.weight"] == "Q4_0"
    with pytest.raises(HalfbyteError, match=r"int4.gguf: tensor 'blk.0.attn_q.weight' is Q4_0 al"):
        quantize_file(target, "int8")


def test_equalization_changes_no_logit(storyteller: Path, tmp_path: Path) -> None:
    """Powers of two are exact: a float32 copy of the scaled model is the same function."""
    file = open_model(storyteller)
    tensors = {name: t.decode().copy() for name, t in file.tensors.items()}
    random = np.random.default_rng(0)
    channels = random.choice(len(tensors["blk.0.attn_norm.weight"]), 8, replace=False)
    tensors["blk.0.attn_norm.weight"][channels] *= 64
    for reader in ("attn_q", "attn_k", "attn_v"):
        tensors[f"blk.0.{reader}.weight"][:, channels] /= 64
    tensors["blk.1.ffn_up.weight"][3] *= 64
    tensors["blk.1.ffn_down.weight"][:, 3] /= 64
    paths = [tmp_path / "rough.gguf", tmp_path / "even.gguf"]
    stored = {n: Tensor(n, F32, v.shape, v.reshape(-1).view(np.uint8)) for n, v in tensors.items()}
    write_gguf(paths[0], file.metadata, stored.values())
    rough = open_model(paths[0])
    scales = find_scales(rough, norm_groups(rough), Codec())
    assert (scales.columns["blk.0.attn_norm.weight"][channels] == 1 / 64).all()
    assert scales.rows["blk.1.ffn_up.weight"][3] == 1 / 64
    even = []
    for name, tensor in rough.tensors.items():
        value = scales.apply(name, 0, tensor.decode().reshape(-1, tensor.columns))
        even.append(Tensor(name, F32, tensor.shape, value.reshape(-1).view(np.uint8)))
    write_gguf(paths[1], file.metadata, even)
    logits = []
    for path in paths:
        with halfbyte.load(path, backend="numpy") as model:
            logits.append(model.logits([1, 300, 301, 302]))
    np.testing.assert_array_equal(logits[0], logits[1])


def test_exponents() -> None:
    sizes = np.array([1, 1, 1, 1, 1, 1, 0, 2.5, 2.9, 64, 1 / 64, 1e30], np.float32)
    assert exponents(sizes).tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 2, 6, -6, 24]
    assert exponents(np.zeros(3, np.float32)).tolist() == [0, 0, 0]


def test_report(storyteller: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, where = tmp_path / "out.gguf", tmp_path / "report.json"
    command = [str(storyteller), "--int4", "-o", str(target), "--json", str(where), "--verbose"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert err == ""  # no bar unless stderr is a terminal
    report = json.loads(where.read_text())
    assert report["bytes_after"] == target.stat().st_size
    assert report["bytes_before"] == storyteller.stat().st_size
    rows = {row["name"]: row for row in report["rows"]}
    assert rows["blk.0.ffn_up.weight"]["bits_per_weight"] == 4.5
    assert rows["blk.0.ffn_up.weight"]["search_gain_db"] > 0.2
    assert rows["blk.0.attn_norm.weight"]["search_gain_db"] is None
    assert "x smaller" in out
    lowest = min(report["rows"], key=lambda row: row["snr_db"] or np.inf)
    assert f"lowest SNR: {lowest['name']} {lowest['snr_db']:.2f} dB" in out
    assert "blk.0.ffn_up.weight" in out
    assert "\x1b" not in out


def test_memory_stays_small(tmp_path: Path) -> None:
    """400 MB of weights, one matrix of 320 MB, in a process that never holds 200 MB."""
    path = tmp_path / "big.gguf"
    block = np.random.default_rng(0).standard_normal((2000, 4000), np.float32)
    matrix = np.lib.stride_tricks.as_strided(block, (20_000, 4000), (0, 4))
    tensors = {"token_embd.weight": matrix, "b": block[:1000], "c": block[1000:]}
    infos = [TensorInfo(n, F32, v.shape) for n, v in tensors.items()]
    with GGUFWriter(path, {"general.architecture": "x"}, infos) as out:
        for value in tensors.values():
            for first in range(0, len(value), 1000):
                out.write(np.ascontiguousarray(value[first : first + 1000]).view(np.uint8))
    script = (
        "import sys; from halfbyte.quantize import quantize_file\n"
        "from halfbyte.text import footprint\n"
        "quantize_file(sys.argv[1], 'int4'); print(footprint.peak_bytes())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path], check=True, capture_output=True, text=True
    )
    assert path.stat().st_size > 345e6
    assert int(done.stdout) < 200e6


@pytest.mark.parametrize("group", [8, 32, 64, 256])
def test_grouped_tensors_are_made_a_slice_at_a_time(
    tmp_path: Path, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of any length: the rows of slices are those of the whole."""
    file = open_model(write_v2(tmp_path / "m.bin", group))
    whole = {name: t.decode() for name, t in file.tensors.items()}
    monkeypatch.setattr(encode, "SLICE", 200)
    results: list[int] = []
    make = Groups.__call__

    def watched(groups: Groups, first: int, count: int) -> np.ndarray:
        results.append(count * groups.columns)
        return make(groups, first, count)

    monkeypatch.setattr(Groups, "__call__", watched)
    for name, tensor in file.tensors.items():
        parts = list(encode.slices(file, tensor, Codec()))
        actual = np.concatenate([part.values for part in parts]).reshape(tensor.shape)
        np.testing.assert_array_equal(actual, whole[name])
        assert len(parts) > 1 or whole[name].ndim == 1
    assert 0 < max(results) <= 200
    results.clear()
    quantize_file(file.path, "int4", tmp_path / "out.gguf")
    assert 0 < max(results) <= 200


@pytest.mark.parametrize("kind", ["int4", "int8", "fp16", "bf16"])
def test_definitions_write_the_same_file(
    storyteller: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch,
    native_backends: list[str],
) -> None:  # fmt: skip
    """Without kernels: slower, byte for byte the same."""
    fast, slow = tmp_path / "fast.gguf", tmp_path / "slow.gguf"
    reports = [quantize_file(storyteller, kind, fast)]
    monkeypatch.setattr(encode, "available", lambda: ["numpy"])
    monkeypatch.delattr(encode, "Kernels")
    reports.append(quantize_file(storyteller, kind, slow))
    assert fast.read_bytes() == slow.read_bytes()
    for one, other in zip(reports[0].rows, reports[1].rows, strict=True):
        assert one.snr_db == pytest.approx(other.snr_db, abs=1e-3)
        assert one.search_gain_db == pytest.approx(other.search_gain_db, abs=1e-6)


def test_errors_weigh_as_the_norm_before_them(tmp_path: Path) -> None:
    """Squared gains where a matrix reads a norm, otherwise equal weights."""
    values = weights(tied=False)
    random = np.random.default_rng(1)
    norms = [name for name in values if "_norm" in name]
    for norm in norms:
        values[norm] = np.exp(random.standard_normal(DIM, np.float32))
    path = tmp_path / "m.gguf"
    write_gguf(path, model_metadata(), [made_tensor(n, v) for n, v in values.items()])
    quantized = open_model(quantize_file(path, "int8").output).tensors
    feeds = {"attn_q": "attn_norm", "attn_k": "attn_norm", "attn_v": "attn_norm",
             "ffn_gate": "ffn_norm", "ffn_up": "ffn_norm"}  # fmt: skip
    weighted = 0
    for name, x in values.items():
        if x.ndim == 1:
            continue
        *prefix, part, _ = name.split(".")
        norm = "output_norm" if name == "output.weight" else feeds.get(part)
        gain = values[".".join([*prefix, norm, "weight"])] if norm else np.ones(x.shape[1])
        squares = gain.astype(np.float64) ** 2
        importance = (squares / squares.mean()).astype(np.float32)
        want = search(x, importance, Q8_0)[0]
        np.testing.assert_array_equal(quantized[name].rows, want, err_msg=name)
        alike = search(x, np.ones(x.shape[1], np.float32), Q8_0)[0]
        weighted += not np.array_equal(want, alike)
    assert weighted == 2 * len(feeds) + 1


def test_gguf_reads_every_file(storyteller: Path, tmp_path: Path) -> None:
    source = open_model(storyteller)
    for kind in ("int4", "int8", "fp16", "bf16"):
        target = tmp_path / "out.gguf"
        quantize_file(storyteller, kind, target)
        reader = gguf.GGUFReader(target)
        ours = open_model(target).tensors
        assert [t.name for t in reader.tensors] == list(source.tensors) == list(ours)
        for theirs in reader.tensors:
            values = gguf.quants.dequantize(theirs.data, theirs.tensor_type)
            np.testing.assert_array_equal(values, ours[theirs.name].decode())
        assert {*source.metadata} <= {*reader.fields}


def test_threads_change_no_byte(storyteller: Path, tmp_path: Path) -> None:
    outputs = []
    for threads in (1, 3):
        target = tmp_path / f"{threads}.gguf"
        quantize_file(storyteller, "int4", target, threads=threads)
        outputs.append(target.read_bytes())
    assert outputs[0] == outputs[1]
