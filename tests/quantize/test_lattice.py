"""Matrices whose values lie on the lattice of Q4_0 or Q8_0 are written without any loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.formats.folders import trained_weights, write_folder, write_safetensors

import halfbyte
from halfbyte.quantize import quantize_file
from halfbyte.quantize.lattice import NOTE, find_scales
from halfbyte.text.opening import open_model
from halfbyte.weights import BF16, F16, F32, Q4_0, Q8_0, ScaledFormat, WeightFormat
from halfbyte.weights.few_bits import TQ2_0

Array = npt.NDArray[Any]
UP, DOWN = "model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight"


def stored(kind: type[WeightFormat], x: Array) -> Array:
    return kind.decode(kind.encode(x))


def lattice(random: np.random.Generator, shape: tuple[int, int], low: int, high: int) -> Array:
    """Multiples of a scale for each block that F16 holds; some blocks reach no end of the range."""
    rows, columns = shape
    q = random.integers(low, high + 1, (rows, columns // 32, 32))
    q[::3] = np.clip(q[::3], -3, 2)
    q[0, 0] = 0
    d = random.uniform(0.001, 0.1, q.shape[:2]).astype(np.float16).astype(np.float32)
    return (q * d[..., None]).astype(np.float32).reshape(shape)


@pytest.mark.parametrize("kind", [F32, F16, BF16])
def test_scales_of_four_bits(kind: type[WeightFormat]) -> None:
    x = stored(kind, lattice(np.random.default_rng(0), (64, 128), -8, 7))
    scales = find_scales(Q4_0, x, lambda y: stored(kind, y))
    assert not np.isnan(scales).any()
    data = Q4_0.fit(x, scales[..., None], np.zeros_like(scales[..., None]))
    np.testing.assert_array_equal(stored(kind, Q4_0.decode(data.reshape(64, -1))), x)


@pytest.mark.parametrize("kind", [F32, F16, BF16])
@pytest.mark.parametrize("format_", [Q4_0, Q8_0])
def test_ordinary_weights_lie_on_none(
    kind: type[WeightFormat], format_: type[ScaledFormat]
) -> None:
    """Ten thousand blocks, normal and uniform."""
    random = np.random.default_rng(1)
    x = np.vstack([random.standard_normal((5000, 32)), random.uniform(-1, 1, (5000, 32))])
    x = stored(kind, (x * 0.02).astype(np.float32))
    assert np.isnan(find_scales(format_, x, lambda y: stored(kind, y))).all()


@pytest.mark.parametrize("kind", [F32, F16, BF16])
def test_threes(kind: type[WeightFormat]) -> None:
    """Blocks of -d, 0 and d; not those with another magnitude, or one that F16 does not hold."""
    random = np.random.default_rng(4)
    d = stored(kind, random.uniform(0.01, 2, (8, 2)).astype(np.float16).astype(np.float32))
    x = random.integers(-1, 2, (8, 2, 256)).astype(np.float32)
    x[0, 0] = 0
    x = (x * d[..., None]).reshape(8, 512)
    scales = find_scales(TQ2_0, x, lambda y: stored(kind, y))
    assert not np.isnan(scales).any()
    zeros = np.zeros_like(scales[..., None])
    np.testing.assert_array_equal(TQ2_0.decode(TQ2_0.fit(x, scales[..., None], zeros)), x)
    x[2, 300] = 2 * d[2, 1]
    x[3, :256] = np.sign(x[3, :256]) * np.float32(2.0**-30)
    found = np.argwhere(np.isnan(find_scales(TQ2_0, x, lambda y: stored(kind, y))))
    assert found.tolist() == [[2, 1], [3, 0]]


def test_one_weight_beside_the_lattice() -> None:
    x = lattice(np.random.default_rng(2), (8, 64), -8, 7)
    assert not np.isnan(find_scales(Q4_0, x, lambda y: y)).any()
    x[5, 40] = np.nextafter(x[5, 40], np.float32(1))
    assert np.argwhere(np.isnan(find_scales(Q4_0, x, lambda y: y))).tolist() == [[5, 1]]


@pytest.mark.parametrize("preset", ["int4", "int8", "Q4_K_M"])
def test_they_are_found_and_written(preset: str, tmp_path: Path) -> None:
    """A matrix of four bits and one of eight among ordinary ones."""
    random = np.random.default_rng(3)
    folder = write_folder(tmp_path / "m")
    tensors = trained_weights()
    tensors[UP] = lattice(random, tensors[UP].shape, -8, 7)
    rows = random.integers(-127, 128, tensors[DOWN].shape)
    rows[:, 3] = 127
    d = random.uniform(1e-4, 1e-3, (len(rows), 1)).astype(np.float16).astype(np.float32)
    tensors[DOWN] = (rows * d).astype(np.float32)
    write_safetensors(folder / "model.safetensors", tensors)
    report = quantize_file(folder, preset, tmp_path / "out.gguf")
    written = open_model(report.output).tensors
    kinds = {row.name: (row.type, row.note) for row in report.rows}
    up, down = "blk.0.ffn_up.weight", "blk.1.ffn_down.weight"
    assert kinds[up] == ("Q4_0", "the values lie on its lattice: nothing is lost")
    np.testing.assert_array_equal(written[up].decode().reshape(tensors[UP].shape), tensors[UP])
    if preset != "int4":  # its 64 columns are no multiple of a K-quant's block
        assert kinds[down] == ("Q8_0", "the values lie on its lattice: nothing is lost")
        decoded = written[down].decode().reshape(tensors[DOWN].shape)
        np.testing.assert_array_equal(decoded, tensors[DOWN])
    assert sum("lattice" in note for _, note in kinds.values()) == 1 + (preset != "int4")
    assert "not equalized, since tensors are quantized already" in report.notes
    plain = quantize_file(folder, preset, tmp_path / "rtn.gguf", rtn=True)
    assert not any("lattice" in row.note for row in plain.rows)


def test_a_checkpoint_trained_for_four_bits_keeps_its_logits(tmp_path: Path) -> None:
    """As training for them leaves it: the divergence is 0, and not with plain rounding."""
    random = np.random.default_rng(5)
    tensors = {
        name: x if x.ndim < 2 else lattice(random, x.shape, -8, 7)
        for name, x in trained_weights().items()
    }
    folder = write_folder(tmp_path / "m")
    write_safetensors(folder / "model.safetensors", tensors)
    report = quantize_file(folder, "int4", tmp_path / "exact.gguf")
    matrices = [row for row in report.rows if len(row.shape) > 1]
    assert {(row.type, row.note) for row in matrices} == {("Q4_0", NOTE)}
    before = open_model(folder).tensors
    for name, tensor in open_model(report.output).tensors.items():
        np.testing.assert_array_equal(tensor.decode(), before[name].decode())
    quantize_file(folder, "int4", tmp_path / "rounded.gguf", rtn=True)
    text = list(range(3, 19))
    exact, written, rounded = (
        log_probabilities(path, text) for path in (folder, report.output, tmp_path / "rounded.gguf")
    )
    assert np.abs(divergence(exact, written)).max() < 1e-9
    assert divergence(exact, rounded).max() > 1e-4


def log_probabilities(path: Path, ids: list[int]) -> Array:
    with halfbyte.load(path, activations="float", cache="f32") as model:
        logits = model.logits(ids).astype(np.float64)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def divergence(p: Array, q: Array) -> Array:
    """KL of each position's distributions, from their logarithms."""
    kl: Array = (np.exp(p) * (p - q)).sum(axis=1)
    return kl
