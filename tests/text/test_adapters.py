"""Adapters: logits of `peft`, switching, contexts, merging."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.formats.folders import write_json, write_safetensors
from tests.text import adapters
from tests.text.architectures import models
from tests.text.architectures.test_folders import write

import halfbyte
from halfbyte import LanguageModel
from halfbyte.cli import main, quantize
from halfbyte.core import ops
from halfbyte.core.aligned import padded
from halfbyte.core.program import ADAPTERS
from halfbyte.errors import HalfbyteError
from halfbyte.quantize import quantize_file

NAME = "llama"
BASE = {  # matrices of the tiny Llama
    "blk.0.attn_q.weight": (32, 32), "blk.0.attn_k.weight": (16, 32),
    "blk.1.ffn_down.weight": (32, 64), "blk.2.ffn_up.weight": (64, 32), "output.weight": (264, 32),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny Llamas in F32 and int4, and two adapters: `first` in GGUF, `second` of PEFT."""
    folder = tmp_path_factory.mktemp("adapters")
    models.write(folder / "f32.gguf", NAME)
    for kind in ("int4", "int8"):
        quantize_file(folder / "f32.gguf", kind, folder / f"{kind}.gguf")
    adapters.write_gguf_adapter(folder / "first.gguf", adapters.changes_of(BASE, 16))
    adapters.write_peft(folder / "second", NAME)
    return folder


def loaded(folder: Path, file: str, **options: object) -> LanguageModel:
    """A model with both adapters, the second one switched off."""
    files = {folder / "first.gguf": 1.0, folder / "second": 0.0}
    return halfbyte.load(folder / file, lora=files, **options)


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "gguf") for name in adapters.CONFIGS), *((n, "folder") for n in ("llama", "gpt2"))],
)
def test_logits_are_those_of_peft(name: str, kind: str, tmp_path: Path) -> None:
    """Beside the model, and merged into its matrices."""
    _, rows, expected = models.read_golden(f"lora-{name}")
    if kind == "gguf":
        path = models.write(tmp_path / "model.gguf", name)
    else:
        path = write(tmp_path / "model", name, "model.safetensors")
    adapter = adapters.write_peft(tmp_path / "adapter", name)
    merged = tmp_path / "merged.gguf"
    quantize_file(path, "fp16", merged, keep=[("*", "F32")], lora={adapter: 1.0})
    with halfbyte.load(path, lora={adapter: 1.0}) as model, halfbyte.load(merged) as other:
        for one in (model, other):
            actual = one.logits(models.ids(name))[rows, : models.COLUMNS]
            assert models.largest_difference(actual, expected) < 1e-4


@pytest.mark.parametrize("file", ["f32.gguf", "int4.gguf"])
@pytest.mark.parametrize(
    "options", [{"threads": 2}, {"weights": "streamed"}, {"weights": "mapped"}, {"batch": 5}]
)
def test_results_do_not_depend_on_how_it_runs(
    folder: Path, file: str, options: dict[str, object]
) -> None:
    ids = models.ids(NAME)
    with loaded(folder, file) as model, loaded(folder, file, **options) as other:
        expected, actual = (m.adapter("second", 0.5).logits(ids) for m in (model, other))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("file", ["f32.gguf", "int4.gguf"])
def test_backends_agree(folder: Path, file: str, backend: str) -> None:
    """Also with the program as it was captured, for quantized weights with float activations."""
    ids = models.ids(NAME)
    with loaded(folder, file, backend="numpy") as model, loaded(folder, file, backend=backend) as o:
        assert models.largest_difference(o.logits(ids), model.logits(ids)) < 1e-3
    floats = {"activations": "float", "cache": "f32"}
    with (
        loaded(folder, file, backend=backend, **floats) as model,
        loaded(folder, file, backend="numpy", passes=False, cache="f32") as other,
    ):
        assert models.largest_difference(model.logits(ids), other.logits(ids)) < 1e-4


@pytest.mark.parametrize("file", ["f32.gguf", "int8.gguf"])
def test_an_adapter_adds_what_merging_does(folder: Path, file: str, tmp_path: Path) -> None:
    """Two at once, of scales of their own; int8 is as far from it as without adapters."""
    ids, files = models.ids(NAME), {folder / "first.gguf": 0.5, folder / "second": -0.25}
    quantize_file(folder / "f32.gguf", "fp16", tmp_path / "m.gguf", keep=[("*", "F32")], lora=files)
    with halfbyte.load(tmp_path / "m.gguf") as merged, loaded(folder, file) as model:
        both = model.adapter("first", 0.5).adapter("second", -0.25)
        bound = 1e-4 if file == "f32.gguf" else 0.2
        expected = merged.logits(ids)
        assert models.largest_difference(both.logits(ids), expected) < bound
        assert models.largest_difference(model.logits(ids), expected) > 0.5


@pytest.mark.parametrize("file", ["f32.gguf", "int4.gguf"])
def test_switched_off_it_is_the_model_without(folder: Path, file: str) -> None:
    """To the bit; and its instructions have no rows then."""
    ids = models.ids(NAME)
    with loaded(folder, file) as model, halfbyte.load(folder / file) as plain:
        off = model.adapter("first", 0)
        np.testing.assert_array_equal(off.logits(ids), plain.logits(ids))
        sizes = off.registers(3, 0, 1)
        assert {sizes[name] for name in sizes if "@" in name} == {0}
        sizes = model.registers(3, 0, 1)
        assert sizes["n@0"] == 3
        assert sizes["n@1"] == 0
        assert "adapters" not in plain.program.inputs


def test_matrices_lie_in_the_order_in_which_they_are_read(folder: Path) -> None:
    """A, and B with its factors, as one stream, which is prefetched beyond the end of a matrix."""
    arrays, added = [], 0
    with loaded(folder, "int4.gguf") as model:
        for instruction in model.program.instructions:
            operands = instruction.operands
            if instruction.operator is ops.add_low_rank:
                arrays += [operands[name].value for name in ("d", "b")]
                added += 1
            elif "w" in operands and operands["w"].name.startswith(ADAPTERS):
                arrays.append(operands["w"].value.data)
    places = [array.ctypes.data for array in arrays]
    ends = [start + padded(array.nbytes) for start, array in zip(places, arrays, strict=True)]
    assert added > len(BASE)
    assert len(arrays) > 2 * added
    assert places[1:] == ends[:-1]


def test_contexts_are_not_shared(folder: Path) -> None:
    """Keys and values are used again only for the same scales; texts may be read in turn."""
    options = {"max_tokens": 12, "temperature": 0}
    with loaded(folder, "int4.gguf") as model:
        each = [model, model.adapter("first", 0.5), model.adapter("first", 0)]
        expected = []
        for one in each:
            model.reset()
            expected.append(one.generate("ab", **options))
        assert len(set(expected)) == 3
        assert [one.generate("ab", **options) for one in each] == expected
        both = zip(*(one.stream("ab", **options) for one in each[:2]), strict=True)
        assert ["".join(pieces) for pieces in zip(*both, strict=True)] == expected[:2]
        texts = [one.generation("abab", max_tokens=1) for one in (model, model, each[1], each[2])]
        for text in texts:
            list(text)
        assert [text.reused > 0 for text in texts] == [False, True, False, False]
        model.reset()
        model.feed([1, 262])
        with pytest.raises(HalfbyteError, match="context holds 2 tokens that were read with"):
            each[1].feed([263])
        each[1].rewind([1, 262])
        each[1].feed([1, 262])


def test_an_adapter_belongs_to_its_model(folder: Path) -> None:
    with loaded(folder, "f32.gguf") as model:
        with model.adapter("second") as other:
            assert dict(other.scales) == {"first": 1.0, "second": 1.0}
        assert model.generate("a", max_tokens=2, temperature=0)  # is still open
        with pytest.raises(HalfbyteError, match=r"'third': expected one of .* 'first', 'second'"):
            model.adapter("third")
        with pytest.raises(HalfbyteError, match="scale: expected a finite number, found nan"):
            model.adapter("first", float("nan"))
    with pytest.raises(HalfbyteError, match="is closed"):
        other.generate("a")
    twice = {folder / "first.gguf": 1.0, str(folder / "first.gguf"): 1.0}
    with pytest.raises(HalfbyteError, match="another adapter named 'first'"):
        halfbyte.load(folder / "f32.gguf", lora=twice)


def test_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, lora = str(folder / "int4.gguf"), ["--lora", f"{folder / 'first.gguf'}=0.5"]
    assert main(["run", model, "ab", "-n", "9", "--temp", "0", *lora]) == 0
    with loaded(folder, "int4.gguf") as both:
        text = both.adapter("first", 0.5).generate("ab", max_tokens=9, temperature=0)
    assert text in capsys.readouterr().out
    assert main(["bench", model, "-p", "3", "-n", "2", "-r", "1", *lora]) == 0
    output = str(folder / "merged.gguf")
    assert quantize([str(folder / "f32.gguf"), "--int8", "-o", output, *lora]) == 0
    assert "with adapter first at 0.5" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["run", model, "ab", "--lora", "a=b"])
    assert main(["run", model, "ab", "--lora", str(folder / "none")]) == 2
    assert f"{folder / 'none'}: expected an adapter" in capsys.readouterr().err


# ---- adapters that lie ---------------------------------------------------------------------------

Q = "blk.0.attn_q.weight"


def gguf(expected: str, **changed: object) -> tuple[dict[str, object], str]:
    return changed, expected


METADATA = [
    gguf(r"'general.type': expected 'adapter', found 'model'", general__type="model"),
    gguf(r"'adapter.type': expected 'lora', found nothing", adapter__type=None),
    gguf(r"'general.architecture': expected 'llama', found 'gpt2'", general__architecture="gpt2"),
    gguf(r"'adapter.lora.alpha': expected a positive number .* found nothing",
         adapter__lora__alpha=None),
    gguf(r"'adapter.lora.alpha': .* found nan", adapter__lora__alpha=np.float32(np.nan)),
    gguf(r"'adapter.alora.invocation_tokens': halfbyte does not know",
         adapter__alora__invocation_tokens=np.zeros(2, np.int32)),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "expected"), METADATA)
def test_metadata_of_another_file(
    changed: dict[str, object], expected: str, folder: Path, tmp_path: Path
) -> None:
    path = adapters.write_gguf_adapter(
        tmp_path / "bad.gguf", adapters.changes_of({Q: (32, 32)}, 4), **changed
    )
    with pytest.raises(HalfbyteError, match=f"bad.gguf: metadata {expected}"):
        halfbyte.load(folder / "f32.gguf", lora={path: 1.0})


def _changed(name: str, a: tuple[int, ...], b: tuple[int, ...], value: float = 1.0) -> dict:
    return {name: (np.full(a, value, np.float32), np.full(b, value, np.float32))}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (_changed(Q, (4, 64), (32, 4)), r"attn_q.weight.lora_a': expected \[4, 32\], for .* found"),
        (_changed(Q, (4, 32), (16, 4)), r"attn_q.weight.lora_b': expected \[32, 4\]"),
        (_changed(Q, (4, 32), (32, 3)), r"attn_q.weight.lora_b': expected \[32, 4\]"),
        (_changed(Q, (5000, 32), (32, 5000)), r"lora_a': expected a rank of at most 4096"),
        (_changed(Q, (4, 32), (32, 4), np.nan), r"lora_a': expected finite numbers"),
        (_changed("blk.9.attn_q.weight", (4, 32), (32, 4)), r"f32.gguf has no matrix 'blk.9"),
        (_changed("token_embd.weight", (4, 32), (264, 4)), r"multiplied with, found one of 'token"),
        (_changed("blk.0.attn_norm.weight", (4, 32), (32, 4)), r"found one of 'blk.0.attn_norm"),
        ({}, r"expected an adapter, found no tensors"),
    ],
)
def test_tensors_of_another_model(
    changes: dict[str, tuple[np.ndarray, np.ndarray]], expected: str, folder: Path, tmp_path: Path
) -> None:
    path = adapters.write_gguf_adapter(tmp_path / "bad.gguf", changes)
    with pytest.raises(HalfbyteError, match=f"bad.gguf: .*{expected}"):
        halfbyte.load(folder / "f32.gguf", lora={path: 1.0})


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"use_dora": True}, "key 'use_dora': expected nothing, found True"),
        ({"modules_to_save": ["lm_head"]}, "key 'modules_to_save': expected nothing"),
        ({"bias": "all"}, "key 'bias': expected 'none'"),
        ({"peft_type": "IA3"}, "key 'peft_type': expected 'LORA', found 'IA3'"),
        ({"init_lora_weights": "pissa_niter_4"}, "changes the model's own matrices"),
        ({"alpha_pattern": {"(a+)+b": 3}}, "expected the end of a module's name"),
        ({"lora_alpha": None}, "key 'lora_alpha': expected a number, found nothing"),
        ({"lora_alpha": float("inf")}, "key 'lora_alpha': expected a positive number"),
        ({"r": 5}, r"adapter_model.safetensors: tensor 'base.*expected rank 5 .* found 4"),
    ],
)
def test_settings_of_peft(
    changed: dict[str, object], expected: str, folder: Path, tmp_path: Path
) -> None:
    path = adapters.write_peft(tmp_path / "bad", NAME, **changed)
    with pytest.raises(HalfbyteError, match=f"bad.*{expected}"):
        halfbyte.load(folder / "f32.gguf", lora={path: 1.0})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.embed_tokens.lora_embedding_A", "expected only lora_A and lora_B of matrices"),
        ("model.layers.0.self_attn.q_proj.lora_magnitude_vector", "expected only lora_A"),
        ("model.layers.0.self_attn.r_proj.lora_A.weight", "model_type 'llama' has no such tensor"),
        ("model.layers.7.self_attn.q_proj.lora_A.weight", "expected A and B, found one of them"),
        ("model.embed_tokens.lora_A.weight", "expected A and B, found one of them"),
    ],
)
def test_other_tensors_of_peft(name: str, expected: str, folder: Path, tmp_path: Path) -> None:
    path = adapters.write_peft(tmp_path / "bad", NAME)
    tensors = adapters.peft_tensors(NAME)
    tensors[f"base_model.model.{name}"] = np.ones((4, 32), np.float32)
    write_safetensors(path / "adapter_model.safetensors", tensors)
    with pytest.raises(HalfbyteError, match=f"bad.*{name}.*{expected}"):
        halfbyte.load(folder / "f32.gguf", lora={path: 1.0})


def test_what_is_no_adapter(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_json(tmp_path / "adapter_config.json", {})
    for path, expected in (
        (tmp_path / "empty", "expected adapter_config.json and"),
        (tmp_path / "adapter_config.json", "found no adapter_model.safetensors"),
        (folder / "f32.gguf", "'general.type': expected 'adapter', found nothing"),
        (tmp_path / "none.gguf", "none.gguf: expected an adapter: a GGUF file, or a folder"),
    ):
        with pytest.raises(HalfbyteError, match=expected):
            halfbyte.load(folder / "f32.gguf", lora={path: 1.0})
