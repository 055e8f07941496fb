"""Types by measured losses, within bits or bytes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from tests.text.architectures import models

from halfbyte.cli import quantize as main
from halfbyte.errors import HalfbyteError
from halfbyte.quantize import Report, quantize_file
from halfbyte.quantize.calibration import texts
from halfbyte.quantize.encode import Codec
from halfbyte.quantize.methods import Task
from halfbyte.quantize.sensitivity import candidates, mean_divergence, measure
from halfbyte.text.opening import open_model
from halfbyte.weights import F32, Tensor


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models write short texts."""
    monkeypatch.setattr(texts.own_windows, "__defaults__", (100,))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.write(tmp_path / "model.gguf", "llama")


def bits(report: Report) -> float:
    return 8 * sum(row.bytes for row in report.rows) / report.weights


@pytest.mark.parametrize("wanted", [5.0, 8.0])
def test_bits(wanted: float, model: Path, tmp_path: Path) -> None:
    """No more than asked for, and little less; the file has the choices."""
    report = quantize_file(model, bits=wanted, output=tmp_path / "out.gguf", threads=1)
    assert wanted - 0.5 < bits(report) <= wanted
    file = open_model(tmp_path / "out.gguf")
    assert {n: t.format.name for n, t in file.tensors.items()} == {
        row.name: row.type for row in report.rows
    }
    losses = [kl for _, _, kl in report.curve]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 12
    assert "this file" in report.table()
    assert report.type == f"{wanted:g} bits"


@pytest.mark.parametrize("wanted", [46_000])
def test_size(wanted: int, model: Path, tmp_path: Path) -> None:
    """The whole file, with its header."""
    out = tmp_path / "out.gguf"
    report = quantize_file(model, size=wanted, output=out, threads=1)
    assert wanted - 3000 < out.stat().st_size <= wanted
    assert report.bytes_after == out.stat().st_size


def test_kept_types_count(model: Path, tmp_path: Path) -> None:
    keep = [("*.ffn_down.weight", "F16")]
    report = quantize_file(model, bits=8, output=tmp_path / "out.gguf", keep=keep, threads=1)
    types = {row.name: row.type for row in report.rows}
    assert {t for n, t in types.items() if "ffn_down" in n} == {"F16"}
    assert bits(report) <= 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bits", "1"], "1 bits: expected 4.39 bits to 8.61 bits for this model"),
        (["--bits", "9"], "the nearest is 8.61 bits"),
        (["--bits", "-3"], "expected a number of bits per weight"),
        (["--bits", "nan"], "expected a number of bits per weight"),
        (["--size", "1KB"], "0.001MB: expected 0.0"),
        (["--size", "1GB"], "1000MB: expected 0.0"),
        (["--bits", "5", "--rtn"], "losses are measured"),
        (["--bits", "5", "--imatrix", "i.gguf"], "losses are measured"),
    ],
)
def test_impossible_budgets(
    options: list[str], message: str, model: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert main([str(model), *options, "-o", str(tmp_path / "out.gguf")]) == 2
    assert message in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["model.gguf"]


def test_bits_and_size_exclude_each_other(model: Path) -> None:
    with pytest.raises(HalfbyteError, match="expected one of the two"):
        quantize_file(model, bits=5, size=10_000)


def test_a_tensor_that_matters_costs_more(storyteller: Path) -> None:
    """One whose outputs are a hundredth of another's costs nearly nothing; more bits cost less."""
    file = open_model(storyteller)
    name, other = "blk.0.ffn_down.weight", "blk.4.ffn_down.weight"
    values = file.tensors[name].decode() / 100
    small = Tensor(name, F32, values.shape, F32.encode(values).reshape(-1))
    changed = {**file.tensors, name: small}
    file = type(file)(file.path, file.kind, file.metadata, changed, parts=file.parts)
    ids = [np.array([1, *range(300, 360)], np.int32)]
    known = measure(Task(file, {}, ids, Codec()), [name, other])
    for sensitivity in known.values():
        losses = [option.loss for option in sensitivity.options]
        sizes = [option.nbytes for option in sensitivity.options]
        assert sizes == sorted(sizes)
        assert losses[-1] < 0.02 * losses[0]
        assert all(map(math.isfinite, losses))
    assert known[name].options[0].loss < 0.02 * known[other].options[0].loss


def test_mean_divergence_is_that_of_all_tokens() -> None:
    """Of windows that differ in length, and are longer than the rows taken at once."""
    generator = np.random.default_rng(0)
    pairs = [generator.standard_normal((2, n, 9)).astype(np.float32) for n in (70, 3)]
    first, second = ([{"logits": pair[i]} for pair in pairs] for i in (0, 1))
    p, q = (
        np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        for z in np.concatenate(pairs, axis=1).astype(np.float64)
    )
    expected = (p * np.log(p / q)).sum(axis=1).mean()
    np.testing.assert_allclose(mean_divergence(first, second), expected, rtol=1e-6)


def test_candidates_fit_columns() -> None:
    def named(columns: int) -> list[str]:
        return [f.name for f in candidates(Tensor("a", F32, (2, columns), np.empty(0, np.uint8)))]

    assert named(256)[:3] == ["Q2_K", "Q3_K", "IQ4_XS"]
    assert named(96)[-1] == "Q8_0"
    assert not {"Q2_K", "Q3_K", "Q4_K"} & {*named(96)}
    assert named(33) == []


def test_size_counts_the_file_s_alignment(tmp_path: Path) -> None:
    path = models.write(
        tmp_path / "model.gguf", "llama",
        change=lambda metadata, _: metadata.update({"general.alignment": np.uint32(1024)}),
    )  # fmt: skip
    report = quantize_file(path, size=62_000, output=tmp_path / "out.gguf", threads=1)
    assert 58_000 < report.bytes_after <= 62_000


def test_a_head_that_is_too_large_is_named(tmp_path: Path) -> None:
    def enlarge(_: object, tensors: dict[str, np.ndarray]) -> None:
        tensors["output.weight"] = tensors["output.weight"] * np.float32(1e37)

    path = models.write(tmp_path / "model.gguf", "llama", change=enlarge)
    ids = [np.array(models.ids("llama"), np.int32)]
    with pytest.raises(HalfbyteError, match=r"tensor 'output.weight': expected finite numbers"):
        measure(Task(open_model(path), {}, ids, Codec()), ["output.weight"])
