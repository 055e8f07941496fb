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
from halfbyte.quantize.mixtures import MIXTURES, Model, takes_more
from halfbyte.quantize.presets import presets
from halfbyte.quantize.scale_search import search
from halfbyte.text.opening import open_model
from halfbyte.weights import FORMATS, ScaledFormat

F32 = npt.NDArray[np.float32]
SEARCHED = [f for f in FORMATS.values() if issubclass(f, ScaledFormat)]


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
    kind, tied, untied = presets()["Q4_K_M"], Model(8), Model(8, tied=False)
    head, table = "output.weight", "token_embd.weight"
    assert kind.format_of(table, tied).name == "Q6_K"
    assert kind.format_of(table, untied).name == "Q4_K"
    assert kind.format_of(head, untied).name == "Q6_K"
    assert kind.format_of(head, untied, pure=True).name == "Q4_K"
    assert kind.format_of("blk.0.ffn_down.weight", untied, pure=True).name == "Q4_K"
    assert kind.format_of("blk.1.attn_qkv.weight", tied).name == "Q5_K"
    assert presets()["Q4_0"].format_of("position_embd.weight", tied).name == "Q8_0"
    assert presets()["TQ2_0"].format_of(table, untied).name == "Q4_K"


PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
LLAMA_2_7B = Model(32, tied=False, architecture="llama")
LLAMA_3_2_1B = Model(16, architecture="llama", sharing=4)
MISTRAL_7B = Model(32, tied=False, architecture="llama", sharing=4)
LLAMA_2_70B = Model(80, tied=False, architecture="llama", sharing=8)
MIXTRAL = Model(32, tied=False, architecture="llama", sharing=4, experts=8)


def counts(kind: str, model: Model) -> dict[str, int]:
    """Matrices of each type, as llama.cpp prints when it loads a file."""
    names = ["token_embd.weight", *([] if model.tied else ["output.weight"])]
    names += [f"blk.{i}.{part}.weight" for i in range(model.layers) for part in PARTS]
    types = [presets()[kind].format_of(name, model).name for name in names]
    return {name: types.count(name) for name in sorted({*types})}


@pytest.mark.parametrize(
    ("kind", "model", "expected"),
    [
        ("Q2_K", LLAMA_2_7B, {"Q2_K": 129, "Q3_K": 96, "Q6_K": 1}),
        ("Q3_K_M", LLAMA_2_7B, {"Q3_K": 129, "Q4_K": 92, "Q5_K": 4, "Q6_K": 1}),
        ("Q3_K_L", LLAMA_2_7B, {"Q3_K": 129, "Q5_K": 96, "Q6_K": 1}),
        ("Q4_K_S", LLAMA_2_7B, {"Q4_K": 217, "Q5_K": 8, "Q6_K": 1}),
        ("Q4_K_M", LLAMA_2_7B, {"Q4_K": 193, "Q6_K": 33}),
        ("Q5_K_M", LLAMA_2_7B, {"Q5_K": 193, "Q6_K": 33}),
        ("Q4_K_M", LLAMA_3_2_1B, {"Q4_K": 96, "Q6_K": 17}),
        ("Q2_K", MISTRAL_7B, {"Q2_K": 129, "Q3_K": 64, "Q4_K": 32, "Q6_K": 1}),
        ("IQ4_XS", MISTRAL_7B, {"IQ4_XS": 189, "Q5_K": 36, "Q6_K": 1}),
        ("Q3_K_M", LLAMA_2_70B, {"Q3_K": 321, "Q4_K": 155, "Q5_K": 85, "Q6_K": 1}),
    ],
)
def test_mixtures_are_those_of_llama_cpp(kind: str, model: Model, expected: dict[str, int]) -> None:
    assert counts(kind, model) == expected


def test_mixtures_of_models_with_experts() -> None:
    def chosen(kind: str, part: str) -> str:
        return presets()[kind].format_of(f"blk.5.{part}.weight", MIXTRAL).name

    assert chosen("Q4_K_M", "attn_k") == chosen("Q2_K_S", "attn_v") == "Q8_0"
    assert chosen("Q3_K_M", "attn_output") == "Q5_K"
    assert chosen("Q5_K_S", "attn_output") == "Q5_K"
    assert chosen("Q3_K_L", "attn_output") == "Q3_K"
    assert chosen("Q3_K_M", "ffn_down_exps") == "Q4_K"
    assert chosen("MXFP4_MOE", "ffn_up_exps") == "MXFP4"
    assert chosen("MXFP4_MOE", "ffn_up_shexp") == chosen("MXFP4_MOE", "attn_q") == "Q8_0"
    assert chosen("Q4_K_M", "ffn_gate_inp") == "F32"


def test_layers_without_attention_do_not_count() -> None:
    """Of eight layers, three have attention: the third of them is the last."""
    model = Model(8, attention=(1, 4, 7))
    chosen = [presets()["Q3_K_M"].format_of(f"blk.{i}.attn_v.weight", model) for i in (1, 4, 7)]
    assert [f.name for f in chosen] == ["Q5_K", "Q5_K", "Q4_K"]


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K_S", "IQ4_XS", "IQ4_NL", "MXFP4", "TQ2_0"])
def test_files_in_few_bits(kind: str, source: Path, tmp_path: Path) -> None:
    """They are written with llama.cpp's number and run; errors are what the report says."""
    report = quantize_file(source, kind, tmp_path / "m.gguf")
    types = types_of(tmp_path / "m.gguf")
    assert types["blk.4.attn_q.weight"] == kind.removesuffix("_S")
    number = gguf.GGUFReader(tmp_path / "m.gguf").fields["general.file_type"].contents()
    assert number == gguf.LlamaFileType[f"MOSTLY_{kind}" + "_MOE" * (kind == "MXFP4")]
    with halfbyte.load(tmp_path / "m.gguf") as model:
        assert np.isfinite(model.logits([1, 2, 3])).all()
    name = "blk.4.attn_q.weight"
    x, y = (open_model(p).tensors[name].decode() for p in (source, tmp_path / "m.gguf"))
    row = next(row for row in report.rows if row.name == name)
    assert row.snr_db == pytest.approx(10 * np.log10((x**2).sum() / ((x - y) ** 2).sum()), abs=0.01)


def test_numbers_of_mixtures() -> None:
    for name, mixture in MIXTURES.items():
        assert gguf.LlamaFileType[f"MOSTLY_{name}"] == mixture.file_type


@pytest.mark.parametrize(
    ("kind", "types"),
    [("Q4_K", {"Q5_0", "Q8_0"}), ("Q6_K", {"Q8_0"}), ("IQ4_XS", {"IQ4_NL", "Q8_0"})],
)
def test_rows_of_incomplete_blocks(
    kind: str, types: set[str], storyteller: Path, tmp_path: Path
) -> None:
    report = quantize_file(storyteller, kind, tmp_path / "m.gguf")
    assert set(types_of(tmp_path / "m.gguf").values()) - {"F32"} == types
    assert any("no multiple of" in row.note for row in report.rows)


def test_unknown_types_are_refused(source: Path) -> None:
    with pytest.raises(
        HalfbyteError, match=r"type 'IQ3_S': expected one of \['Q3_K_S', .*\] or \d+ others"
    ):
        quantize_file(source, "IQ3_S")


def weights(limit: float = np.inf) -> F32:
    """Normal rows, of zeros, of one number, of both signs, with outliers, tiny and large."""
    x = np.random.default_rng(0).standard_normal((24, 512), np.float32)
    x[0] = 0
    x[1], x[2], x[3] = 3, -3, np.abs(x[3])
    x[4] = -np.abs(x[4])
    x[5, 7] = 400
    x[6] *= 1e-30
    x[7] *= 1e-42
    x[8] *= 3e4 if limit > 2e5 else 3
    x[9, :256] = 0
    x[10, ::32] = 1e-45
    return x


@pytest.mark.parametrize("format_", SEARCHED)
def test_search_is_never_worse(format_: type[ScaledFormat]) -> None:
    x = weights(format_.limit)
    importance = np.random.default_rng(1).random(512, np.float32)
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
    few = format_.powers or format_.levels.high == 1  # scales, integers
    assert off[1] < (0.99 if few else 0.95) * off[0]


def test_what_is_coarse_already_is_refused(source: Path, tmp_path: Path) -> None:
    quantize_file(source, "Q4_K", tmp_path / "once.gguf")
    with pytest.raises(HalfbyteError, match="is Q6_K already"):
        quantize_file(tmp_path / "once.gguf", "Q4_0")
    assert open_model(tmp_path / "once.gguf").tensors["blk.0.attn_q.weight"].format.name == "Q4_K"
