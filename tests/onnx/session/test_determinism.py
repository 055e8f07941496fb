"""The promises of `use_deterministic_compute`, and those that hold without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.support.sampled import often
from tools.onnx_models import make, save

from halfbyte.core.backends import prefers_widened
from halfbyte.onnx.passes.widen_products import MIN_ROWS
from halfbyte.onnx.session import InferenceSession, SessionOptions
from halfbyte.quantize.onnx import Options, quantize_onnx

BATCHES = (1, 15, 16, 17, 64)
LENGTHS = (1, 3)  # of sentences, in tokens
UNFUSED = {"native-scalar", "wasm-simd128"}  # these multiply and add in two steps
Outputs = Mapping[tuple[int, int], npt.NDArray[Any]]  # by length and batch size


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small BERT for each type of weights."""
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
    cache: dict[tuple[str, str, bool], Outputs] = {}

    def outputs(kind: str, backend: str, deterministic: bool) -> Outputs:
        if (kind, backend, deterministic) not in cache:
            options = SessionOptions()
            options.backend, options.intra_op_num_threads = backend, 2
            options.use_deterministic_compute = deterministic
            with InferenceSession(models[kind], options) as session:
                cache[kind, backend, deterministic] = {
                    (n, count): session.run(None, feeds(ids[n][:count]))[0]
                    for n in LENGTHS
                    for count in BATCHES
                }
        return cache[kind, backend, deterministic]

    return outputs


def feeds(ids: npt.NDArray[np.int64]) -> dict[str, Any]:
    return {
        "input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)
    }  # fmt: skip


def assert_rows_are_equal(actual: Outputs, expected: Outputs) -> None:
    """The numbers of each sentence are equal to the bit, in any batch."""
    for (length, count), rows in actual.items():
        whole = expected[length, max(BATCHES)]
        np.testing.assert_array_equal(rows, whole[:count], err_msg=f"{count} x {length}")


@pytest.mark.parametrize("kind", often(["int8", "int4"], ["int8"]))
def test_deterministic_results_depend_on_neither_batch_nor_processor(
    kind: str, run: Run, compiled_backends: list[str]
) -> None:
    first = run(kind, compiled_backends[0], True)
    for backend in compiled_backends:
        assert_rows_are_equal(run(kind, backend, True), first)


def test_floats_depend_on_no_batch_but_on_fused_sums(
    run: Run, compiled_backends: list[str]
) -> None:
    """Two kinds of processors differ: those that round after a multiplication, and others."""
    first: dict[bool, Outputs] = {}
    for backend in compiled_backends:
        outputs = run("fp32", backend, True)
        assert_rows_are_equal(outputs, first.setdefault(backend in UNFUSED, outputs))
    if len(first) == 2:
        a, b = (outputs[3, 64] for outputs in first.values())
        assert 0 < np.abs(a - b).max() < 1e-5 * np.abs(a).max()


def test_without_it_many_rows_may_be_multiplied_otherwise(
    run: Run, compiled_backends: list[str]
) -> None:
    """If a processor prefers it, from a number of rows on; these all agree with each other."""
    for backend in compiled_backends:
        outputs, strict = run("int8", backend, False), run("int8", backend, True)
        few = {key: rows for key, rows in outputs.items() if key[0] * key[1] < MIN_ROWS}
        many = {key: rows for key, rows in outputs.items() if key not in few}
        assert_rows_are_equal(few, strict)
        assert_rows_are_equal(many, outputs)
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
