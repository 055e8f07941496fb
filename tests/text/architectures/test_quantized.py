"""Every architecture quantized: packed weights, equalized channels, caches in Q8_0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.support.sampled import sampled
from tests.text.architectures import configs, models

import halfbyte
from halfbyte.formats import MetadataValue
from halfbyte.formats.huggingface.names import naming
from halfbyte.quantize import quantize_file
from halfbyte.quantize.recipe import layers
from halfbyte.text import architectures
from halfbyte.text.describe import describe
from halfbyte.text.opening import open_model

_TYPES = architectures.model_types()


def _is_exact(name: str) -> bool:
    """Whether a model has channels that may be scaled."""
    architecture = naming(models.config(name), _TYPES).metadata["general.architecture"]
    return bool(architectures.get(str(architecture)).EQUALIZED)


EXACT = [name for name in models.CONFIGS if _is_exact(name)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *sampled(((name, "int8") for name in configs.EVERYWHERE), 4),
        *sampled(((name, "int4") for name in configs.EVERYWHERE), 2),
        *sampled(((name, "int4") for name in configs.OTHERS), 3),
    ],
)
def test_packing_changes_nothing(name: str, kind: str, tmp_path: Path) -> None:
    """Matrices split off a fused one are packed like others, also in place. NumPy is near."""
    ids, path = models.ids(name), tmp_path / "quantized.gguf"
    quantize_file(models.write(tmp_path / "model.gguf", name), kind, path)
    with halfbyte.load(path) as packed, halfbyte.load(path, weights="mapped") as plain:
        expected = packed.logits(ids)
        np.testing.assert_array_equal(plain.logits(ids), expected)
    own = np.fromfile(path, np.uint8)
    with halfbyte.load_bytes(own, own=True) as model:
        np.testing.assert_array_equal(model.logits(ids), expected)
    options = {"activations": "float", "cache": "f32"}
    with (
        halfbyte.load(path, backend="numpy", **options) as definition,  # type: ignore[arg-type]
        halfbyte.load(path, **options) as native,  # type: ignore[arg-type]
    ):
        floats = definition.logits(ids)
        assert models.largest_difference(native.logits(ids), floats) < 1e-5
    off = np.abs(expected - floats).max(axis=1) / np.abs(floats).max()
    # Other experts may be chosen; keys that are scaled to length one, scores that are not scaled
    # and steps that are normalized double what is off. Bamba's gates multiply what is off: even
    # NumPy's int8 products, which round sums differently, are 0.4 % away.
    few = {
        "num_experts_per_tok", "top_k_experts", "moe_k", "linear_num_key_heads", "mixer_rms_eps",
        "hidden_size_per_layer_input", "attn_layer_indices",
    }  # fmt: skip
    few &= models.config(name).keys()
    assert (np.median if few else np.max)(off) < 0.1


def roughen(metadata: dict[str, MetadataValue], tensors: dict[str, models.F32Array]) -> None:
    """Make channels after norms, and rows of `up`, far larger than the others."""
    for name, value in tensors.items():
        if name.endswith(("_q.weight", "_k.weight", "_v.weight", "_qkv.weight", "ssm_in.weight")):
            value[:, 3] *= 64
        if name.endswith(("ffn_gate.weight", "ffn_up.weight")):
            value[:, 7] /= 64
            value[5] *= 64
        if name.endswith(("_exps.weight", "_shexp.weight", "_inp.weight")) and "down" not in name:
            value[..., 7] /= 64


@pytest.mark.parametrize("name", sampled(EXACT, 3))
def test_equalizing_is_exact(name: str, tmp_path: Path) -> None:
    """With weights kept in F32, only powers of two remain of quantization, and they cancel."""
    path = models.write(tmp_path / "model.gguf", name, change=roughen)
    report = quantize_file(path, "int8", keep=[("*", "F32")])
    equalized = sum(row.equalized for row in report.rows)
    with halfbyte.load(path) as before, halfbyte.load(report.output) as after:
        channels = architectures.find(before.file).EQUALIZED
        many = "attn_q" in channels.get("attn_norm", ()) and len(channels) > 2
        count = len(layers(before.file))
        assert equalized >= (min(4, count + 1) if many else count)
        ids = models.ids(name)
        np.testing.assert_array_equal(after.logits(ids), before.logits(ids))


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_windows_over_a_cache_in_q8_0(backend: str, tmp_path: Path) -> None:
    """Heads of 32, which the tiny models do not have."""

    def widen(metadata: dict[str, MetadataValue], tensors: dict[str, models.F32Array]) -> None:
        metadata["llama.attention.head_count"] = np.uint32(1)
        metadata["llama.attention.head_count_kv"] = np.uint32(1)
        for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
            metadata[f"llama.{key}"] = np.uint32(32)
        for name in list(tensors):
            if name.endswith(("attn_k.weight", "attn_v.weight")):
                tensors[name] = np.concatenate([tensors[name]] * 2)

    path = models.write(tmp_path / "model.gguf", "mistral", change=widen)
    ids = models.ids("mistral")
    with (
        halfbyte.load(path, backend=backend, cache="q8_0") as coarse,
        halfbyte.load(path, backend=backend, cache="f32") as fine,
    ):
        assert models.largest_difference(coarse.logits(ids), fine.logits(ids)) < 0.02


def test_info_shows_tensors_as_stored(tmp_path: Path) -> None:
    path = models.write(tmp_path / "model.gguf", "phi3")
    shown = describe(path)
    assert "blk.0.attn_qkv.weight " in shown
    assert "blk.0.attn_qkv.weight[" not in shown
    assert "blk.0.attn_qkv.weight" in open_model(path).tensors
