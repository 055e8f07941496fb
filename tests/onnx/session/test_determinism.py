"""What `use_deterministic_compute` promises, and what holds without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tools.onnx_models import make, save

from halfbyte.core.backends import prefers_widened
from halfbyte.onnx.passes.widen_products import MIN_ROWS
from halfbyte.onnx.session import InferenceSession, SessionOptions
from halfbyte.quantize.onnx import Options, quantize_onnx

BATCHES = (1, 15, 16, 17, 64)
LENGTHS = (1, 3)  # tokens: of the products, and of attention too
UNFUSED = {"native-scalar", "wasm-simd128"}  # multiply and add in two steps
Outputs = Mapping[tuple[int, int], npt.NDArray[Any]]  # by length and batch


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small BERT by its weights' type."""
    folder = tmp_path_factory.mktemp("models")
    paths = {kind: folder / f"{kind}.onnx" for kind in ("fp32", "int8", "int4")}
    save(make("bert-small", pooled=True), paths["fp32"])
    for kind in ("int8", "int4"):
        quantize_onnx(paths["fp32"], paths[kind], Options(type=kind, compare=False))
    return paths


Run = Callable[[str, str, bool], Outputs]


@pytest.fixture(scope="module")
def run(models: dict[str, Path]) -> Run:
    """Token outputs of a model on a backend."""
    ids = {n: np.random.default_rng(n).integers(0, 1000, (max(BATCHES), n)) for n in LENGTHS}
    known: dict[tuple[str, str, bool], Outputs] = {}

    def outputs(kind: str, backend: str, deterministic: bool) -> Outputs:
        if (kind, backend, deterministic) not in known:
            options = SessionOptions()
            options.backend, options.intra_op_num_threads = backend, 2
            options.use_deterministic_compute = deterministic
            with InferenceSession(models[kind], options) as session:
                known[kind, backend, deterministic] = {
                    (n, count): session.run(None, feeds(ids[n][:count]))[0]
                    for n in LENGTHS
                    for count in BATCHES
                }
        return known[kind, backend, deterministic]

    return outputs


def feeds(ids: npt.NDArray[np.int64]) -> dict[str, Any]:
    return {
        "input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)
    }  # fmt: skip


def assert_rows_are_equal(found: Outputs, expected: Outputs) -> None:
    """Each sentence's numbers, to the bit, whatever it was among."""
    for (length, count), rows in found.items():
        whole = expected[length, max(BATCHES)]
        np.testing.assert_array_equal(rows, whole[:count], err_msg=f"{count} x {length}")


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_deterministic_results_depend_on_neither_batch_nor_processor(
    kind: str, run: Run, compiled_backends: list[str]
) -> None:
    first = run(kind, compiled_backends[0], True)
    for backend in compiled_backends:
        assert_rows_are_equal(run(kind, backend, True), first)


def test_floats_depend_on_no_batch_but_on_fused_sums(
    run: Run, compiled_backends: list[str]
) -> None:
    """Two kinds of processors: those that round after a multiplication, and all others."""
    first: dict[bool, Outputs] = {}
    for backend in compiled_backends:
        found = run("fp32", backend, True)
        assert_rows_are_equal(found, first.setdefault(backend in UNFUSED, found))
    if len(first) == 2:
        a, b = (found[3, 64] for found in first.values())
        assert 0 < np.abs(a - b).max() < 1e-5 * np.abs(a).max()


def test_without_it_many_rows_may_be_multiplied_otherwise(
    run: Run, compiled_backends: list[str]
) -> None:
    """Where a processor prefers it, from so many rows on; then all of these are alike."""
    for backend in compiled_backends:
        found, strict = run("int8", backend, False), run("int8", backend, True)
        few = {key: rows for key, rows in found.items() if key[0] * key[1] < MIN_ROWS}
        many = {key: rows for key, rows in found.items() if key not in few}
        assert_rows_are_equal(few, strict)
        assert_rows_are_equal(many, found)
        for key, rows in many.items():
            off = np.linalg.norm(rows - strict[key])
            assert off < 5e-3 * np.linalg.norm(strict[key])
            assert (off > 0) == prefers_widened(backend), (backend, key)


@pytest.mark.parametrize("kind", ["fp32", "int4"])
def test_without_it_other_types_are_the_same(
    kind: str, run: Run, native_backends: list[str]
) -> None:
    for backend in native_backends:
        assert_rows_are_equal(run(kind, backend, False), run(kind, backend, True))


def test_it_is_off_by_default() -> None:
    assert SessionOptions().use_deterministic_compute is False
