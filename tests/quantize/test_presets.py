"""Presets and their mixtures, and the encoders of formats with minima or nested scales."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from tests.support.tools import load_tool

import halfbyte
from halfbyte.cli import quantize as main
from halfbyte.errors import HalfbyteError
from halfbyte.quantize import quantize_file
from halfbyte.quantize.presets import presets, takes_more
from halfbyte.quantize.search_blocks import search
from halfbyte.text.opening import open_model
from halfbyte.weights import FORMATS, ScaledFormat

F32 = npt.NDArray[np.float32]
SEARCHED = [
    f for f in FORMATS.values() if issubclass(f, ScaledFormat) and f.presets and not f.factors
]


@pytest.fixture(scope="module")
def source(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("presets") / "model.gguf"
    load_tool(repository, "make_model").make_model(path, "tiny-256", "F32")
    return path


def types_of(path: Path) -> dict[str, str]:
    return {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}


def test_layers_that_take_more() -> None:
    """As in llama.cpp's files of 16 (Llama 3.2 1B) and 32 layers."""
    assert [i for i in range(16) if takes_more(i, 16)] == [0, 1, 4, 7, 10, 13, 14, 15]
    layers = [i for i in range(32) if takes_more(i, 32)]
    assert layers == [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]


def test_mixture_gives_more_to_some(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(source), "--type", "Q4_K_M"]) == 0
    target = source.with_name("model-Q4_K_M.gguf")
    formats = types_of(target)
    more = {f"blk.{i}.{part}.weight" for i in (0, 3, 6, 7) for part in ("attn_v", "ffn_down")}
    assert {name for name, t in formats.items() if t == "Q6_K"} == {
        "token_embd.weight",
        *more,
    }
    assert formats["blk.1.ffn_down.weight"] == formats["blk.0.attn_q.weight"] == "Q4_K"
    assert formats["blk.0.attn_norm.weight"] == "F32"
    assert gguf.GGUFReader(target).fields["general.file_type"].contents() == 15
    out = capsys.readouterr().out
    assert "Q4_K" in out
    assert "Q6_K" in out
    with halfbyte.load(target) as model:
        assert np.isfinite(model.logits([1, 2, 3])).all()


def test_heads_and_fused_matrices() -> None:
    kind = presets()["Q4_K_M"]
    head, table = "output.weight", "token_embd.weight"
    assert kind.format_of(table, 8, tied=True).name == "Q6_K"
    assert kind.format_of(table, 8, tied=False).name == "Q4_K"
    assert kind.format_of(head, 8, tied=False).name == "Q6_K"
    assert kind.format_of(head, 8, tied=False, pure=True).name == "Q4_K"
    assert kind.format_of("blk.1.attn_qkv.weight", 8, tied=True).name == "Q5_K"
    assert presets()["Q4_0"].format_of("position_embd.weight", 8, tied=True).name == "Q8_0"


@pytest.mark.parametrize(("kind", "types"), [("Q4_K", {"Q5_0", "Q8_0"}), ("Q6_K", {"Q8_0"})])
def test_rows_of_incomplete_blocks(
    kind: str, types: set[str], storyteller: Path, tmp_path: Path
) -> None:
    report = quantize_file(storyteller, kind, tmp_path / "m.gguf")
    assert set(types_of(tmp_path / "m.gguf").values()) - {"F32"} == types
    assert any("no multiple of" in row.note for row in report.rows)


def test_unknown_types_are_refused(source: Path) -> None:
    with pytest.raises(HalfbyteError, match=r"type 'Q3_K': expected one of \['int4', .*'Q6_K'\]"):
        quantize_file(source, "Q3_K")


def weights() -> F32:
    """Normal rows, of zeros, of one number, of both signs, with outliers, tiny and large."""
    x = np.random.default_rng(0).standard_normal((24, 512), np.float32)
    x[0] = 0
    x[1], x[2], x[3] = 3, -3, np.abs(x[3])
    x[4] = -np.abs(x[4])
    x[5, 7] = 400
    x[6] *= 1e-30
    x[7] *= 1e-42
    x[8] *= 3e4
    x[9, :256] = 0
    x[10, ::32] = 1e-45
    return x


@pytest.mark.parametrize("format_", SEARCHED)
def test_search_is_never_worse(format_: type[ScaledFormat]) -> None:
    x, importance = weights(), np.random.default_rng(1).random(512, np.float32)
    importance[:32] = 0
    rows, errors = search(x, importance, format_)
    plain = format_.encode(x)

    def weighted(encoded: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
        off = format_.decode(encoded).astype(np.float64) - x
        total: npt.NDArray[np.float64] = (off**2 * importance).sum(axis=1)
        return total

    np.testing.assert_allclose(errors[:, 0], weighted(plain), rtol=1e-4, atol=1e-38)
    np.testing.assert_allclose(errors[:, 1], weighted(rows), rtol=1e-4, atol=1e-38)
    assert (errors[:, 1] <= errors[:, 0]).all()
    assert errors[11:, 1].sum() < 0.97 * errors[11:, 0].sum()
    assert not format_.decode(rows)[0].any()


@pytest.mark.parametrize("format_", SEARCHED)
def test_importance_decides(format_: type[ScaledFormat]) -> None:
    """Columns with larger weights are closer."""
    x = weights()[11:]
    importance = np.ones(512, np.float32)
    importance[::4] = 100
    even, _ = search(x, np.ones(512, np.float32), format_)
    odd, _ = search(x, importance, format_)
    off = [np.square(format_.decode(rows) - x)[:, ::4].sum() for rows in (even, odd)]
    assert off[1] < 0.95 * off[0]


def test_what_is_coarse_already_is_refused(source: Path, tmp_path: Path) -> None:
    quantize_file(source, "Q4_K", tmp_path / "once.gguf")
    with pytest.raises(HalfbyteError, match="is Q6_K already"):
        quantize_file(tmp_path / "once.gguf", "Q4_0")
    assert open_model(tmp_path / "once.gguf").tensors["blk.0.attn_q.weight"].format.name == "Q4_K"
