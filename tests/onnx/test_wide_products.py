"""8-bit products become 16-bit ones, where these are as fast."""

from __future__ import annotations

import numpy as np
import pytest
from tests.onnx.test_slices import feeds_of, run
from tools.onnx_models import make, save

from halfbyte import SessionOptions
from halfbyte.core import ops
from halfbyte.core.backends import available, prefers_widened
from halfbyte.onnx.files import open_onnx
from halfbyte.onnx.files.model import Model
from halfbyte.onnx.session import InferenceSession
from halfbyte.quantize.onnx import Options, quantize_onnx

BYTES = {"avx512vnni", "avxvnni", "i8mm", "dotprod", "neon", "scalar"}  # faster with bytes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A small BERT in int8."""
    folder = tmp_path_factory.mktemp("models")
    source, target = folder / "bert.onnx", folder / "bert-int8.onnx"
    save(make("bert-small", pooled=True), source)
    quantize_onnx(source, target, Options(type="int8", compare=False))
    return open_onnx(target)


def test_backends_that_prefer_them() -> None:
    assert not prefers_widened("numpy")
    for backend in available():
        isa = backend.removeprefix("native-")
        assert prefers_widened(backend) == (backend != "numpy" and isa not in BYTES)
    assert prefers_widened("native") == prefers_widened(available()[0])
    assert not prefers_widened("abacus")


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_they_replace_products_of_many_rows(model: Model, backend: str) -> None:
    plain, narrow, _ = run(model, feeds_of(4, 4), backend)
    widened, wide, _ = run(model, feeds_of(4, 4), backend, wide_products=True)
    assert wide[ops.matmul_widened] == narrow[ops.matmul_rotated] > 0
    assert not wide[ops.matmul_rotated]
    assert not narrow[ops.matmul_widened]
    assert wide[ops.matmul_int8] == narrow[ops.matmul_int8]
    differs = False
    for name, value in plain.items():
        off = np.linalg.norm(widened[name] - value)
        assert off < 5e-3 * np.linalg.norm(value)  # later integers were rounded differently
        differs |= not np.array_equal(widened[name], value)
    assert differs


def test_few_rows_keep_products_of_bytes(model: Model) -> None:
    counts = run(model, feeds_of(3, 5), "native", wide_products=True)[1]
    assert not counts[ops.matmul_widened]
    assert counts[ops.matmul_rotated]


@pytest.mark.parametrize("backend", available())
def test_a_session_uses_the_products_that_its_backend_prefers(model: Model, backend: str) -> None:
    options = SessionOptions()
    options.backend = backend
    session = InferenceSession(str(model.path), options)
    session.run(None, feeds_of(4, 4))
    operators = [i.operator for program in session.programs() for i in program.instructions]
    product, other = ops.matmul_rotated, ops.matmul_widened
    if prefers_widened(backend):
        product, other = other, product
    assert product in operators
    assert other not in operators
