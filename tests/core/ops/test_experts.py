"""Only the matrices of experts that have rows take part, in results and in costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.core.ops.case import Case
from tests.core.ops.test_operators import CASES, captured, run

from halfbyte.core import ops
from halfbyte.weights import Tensor

PRODUCTS = [
    case
    for case in CASES
    if case.operator in (ops.matmul_experts, ops.matmul_experts_int8)
    and (np.diff(case.operands["ends"], prepend=0) == 0).any()
    and case.label.startswith(("F32-", "Q4_0-", "Q4_0_R16-", "Q4_K_R16-"))
]


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda c: f"{c.operator.name}-{c.label}")
def test_other_matrices_are_not_used(case: Case, native_backends: list[str]) -> None:
    """Theirs are NaN, in blocks as well: 0xFF in every byte."""
    w: Tensor = case.operands["w"]
    data = w.data.reshape(w.shape[0], -1).copy()
    data[np.diff(case.operands["ends"], prepend=0) == 0] = 0xFF
    spoilt = Tensor(w.name, w.format, w.shape, data.reshape(-1))
    other = replace(case, operands={**case.operands, "w": spoilt})
    for backend in native_backends:
        (expected,), (result,) = run(case, backend), run(other, backend)
        assert np.isfinite(expected).all()
        np.testing.assert_array_equal(result, expected)


def test_a_token_moves_the_bytes_of_its_experts() -> None:
    """Two of three matrices, for one row; with many rows each matrix counts once."""
    for case in PRODUCTS:
        program, buffers, _ = captured(case)
        (instruction,) = program.instructions
        w, u = buffers["w"], case.attributes["u"]
        others = sum(b.nbytes for b in {*instruction.inputs, *instruction.outputs} - {w})
        rows = len(case.operands["ends"]), u * len(case.expected()[0])
        assert instruction.bytes_moved({}) - others == w.nbytes // rows[0] * min(rows)
