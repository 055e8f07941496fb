"""Batches in slices: results are the same to the bit, in less memory."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.onnx.random_graphs import RandomGraph
from tools.onnx_models import make, save

from halfbyte.core import ops
from halfbyte.core.backends import open_program
from halfbyte.core.ops import Operator
from halfbyte.onnx.files import open_onnx
from halfbyte.onnx.files.model import Model
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner, attention_products
from halfbyte.quantize.onnx import Options, quantize_onnx

PASS = importlib.import_module("halfbyte.onnx.passes.slice_rows")
WHOLE = 1 << 40  # bytes of a cache that holds everything: nothing is cut
LAYERS = 2


def feeds_of(batch: int, length: int) -> dict[str, Any]:
    """Tokens of sentences, the last ones shorter."""
    ids = np.random.default_rng(batch).integers(0, 1000, (batch, length))
    mask = np.ones_like(ids)
    mask[batch // 2 :, length - 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """A small BERT in float32 and in int8."""
    folder = tmp_path_factory.mktemp("models")
    source, target = folder / "bert.onnx", folder / "bert-int8.onnx"
    save(make("bert-small", pooled=True), source)
    quantize_onnx(source, target, Options(type="int8", compare=False))
    return {"fp32": open_onnx(source), "int8": open_onnx(target)}


def run(
    model: Model, feeds: dict[str, Any], backend: str, keep: tuple[str, ...] = (), **options: Any
) -> tuple[dict[str, Any], Counter[Operator], int]:
    """Results, the number of instructions of each operator, and the bytes of arenas."""
    runner = Runner(
        prepare(model), lambda program: open_program(program, backend, 2), keep=keep, **options
    )
    names = [v.name for v in model.graph.outputs]
    results = runner.run(feeds, [*names, *keep])
    programs = runner.programs()
    runner.close()
    counts = Counter(i.operator for program in programs for i in program.instructions)
    return results, counts, sum(program.arena_bytes for program in programs)


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("size", [(9, 7), (16, 8), (2, 31)])
def test_slices_equal_the_whole(
    size: tuple[int, int],
    precision: str,
    backend: str,
    models: dict[str, Model],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feeds, model = feeds_of(*size), models[precision]
    in_int8 = precision == "int8" and size[0] == 16
    options = {"int8_attention": attention_products(model, in_int8), "wide_products": in_int8}
    monkeypatch.setattr(PASS, "CACHE", WHOLE)
    wanted, whole, most = run(model, feeds, backend, **options)
    monkeypatch.setattr(PASS, "CACHE", 1)
    monkeypatch.setattr(PASS, "MIN_ROWS", 12)
    sliced, cut, less = run(model, feeds, backend, **options)
    for name, value in wanted.items():
        if (backend, precision) == ("numpy", "fp32"):  # BLAS's sums depend on the matrices' sizes
            np.testing.assert_allclose(sliced[name], value, atol=1e-6)
        else:
            np.testing.assert_array_equal(sliced[name], value)
    rotated = ops.matmul_widened if in_int8 else ops.matmul_rotated
    products = [ops.matmul_int8, rotated] if precision == "int8" else [ops.matmul_panels]
    pieces = size[0] * size[1] // 12
    assert sum(whole[product] for product in products) >= 6 * LAYERS
    assert all(cut[product] == pieces * whole[product] > 0 for product in products)
    attention = ops.attention_int8 if in_int8 else ops.attention
    together = size[0] < pieces  # a sentence cannot be cut
    assert cut[attention] == (1 if together else pieces) * LAYERS
    assert together or less < most


def test_slices_fit_the_caches(models: dict[str, Model]) -> None:
    """There are fewer for more cores, and none if everything fits."""
    counts = [
        run(models["int8"], feeds_of(*size), "native", cores=cores)[1][ops.gelu_hadamard_quantize]
        for size, cores in (((64, 32), 1), ((64, 32), 2), ((8, 32), 1))
    ]
    assert counts[0] > counts[1] >= counts[2] == LAYERS


def test_values_that_are_kept_are_whole(
    models: dict[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, feeds = models["fp32"], feeds_of(9, 7)
    keep = tuple(n.outputs[0] for n in prepare(model).graph.nodes if "LayerNorm" in n.op_type)
    assert keep
    wanted, _, _ = run(model, feeds, "native", keep)
    monkeypatch.setattr(PASS, "CACHE", 1)
    monkeypatch.setattr(PASS, "MIN_ROWS", 12)
    sliced, cut, _ = run(model, feeds, "native", keep)
    assert cut[ops.layer_norm] > 2 * LAYERS + 1
    for name in wanted:
        np.testing.assert_array_equal(sliced[name], wanted[name])


def test_random_graphs_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = 0
    for seed in range(150):
        graph = RandomGraph(seed)
        monkeypatch.setattr(PASS, "CACHE", WHOLE)
        wanted, whole, _ = run(graph.model, graph.feeds, "native")
        monkeypatch.setattr(PASS, "CACHE", 1)
        monkeypatch.setattr(PASS, "MIN_ROWS", 1)
        sliced, cut, _ = run(graph.model, graph.feeds, "native")
        cuts += cut.total() > whole.total()
        for name, value in wanted.items():
            np.testing.assert_array_equal(sliced[name], value, f"graph {seed}: {name}")
    assert cuts > 10


def test_a_file_is_not_changed_by_its_slices(tmp_path: Path) -> None:
    """Plans of broadcasts are constants that other programs share."""
    path = tmp_path / "bert.onnx"
    save(make("bert-small"), path)
    model = open_onnx(path)
    runner = Runner(prepare(model), lambda program: open_program(program, "native", 1))
    names = [v.name for v in model.graph.outputs]
    first = runner.run(feeds_of(64, 16), names)
    runner.run(feeds_of(200, 16), names)
    second = runner.run(feeds_of(64, 16), names)
    for name in names:
        np.testing.assert_array_equal(first[name], second[name])
