"""The traits that operators declare beside their meaning are true."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.core.ops.cases import Case, all_cases

from halfbyte.core.backends.native import Kernels
from halfbyte.core.ops import FUSED, OPERATORS, Operator
from halfbyte.core.ops.operator import operator_of
from halfbyte.device.kernels import kernel_of, usual_kernels
from halfbyte.errors import ProgramError

CASES = all_cases()
ROWS = {name: o for name, o in OPERATORS.items() if o.rows and not o.steps}


def parted(case: Case, arrays: dict[str, Any], rows: slice) -> list[npt.NDArray[Any]]:
    """The meaning of these rows of a case, with all operands that have no such rows."""
    operator = case.operator
    cut = {o.name for o in operator.inputs if o.dims[0] == operator.rows}
    given = [a[rows] if name in cut and a is not None else a for name, a in arrays.items()]
    results = operator.meaning(*given, **case.attributes)
    return list(results if isinstance(results, tuple) else (results,))


@pytest.mark.parametrize("operator", ROWS.values(), ids=ROWS)
def test_rows_are_treated_apart(operator: Operator) -> None:
    """Rows by themselves give the same bits as among others; with BLAS nearly the same."""
    cut = next(o.name for o in operator.inputs if o.dims[0] == operator.rows)
    cases = [c for c in CASES if c.operator is operator and len(c.operands[cut]) > 1]
    assert cases
    for case in cases:
        with np.errstate(all="ignore"):
            whole = parted(case, case.operands, slice(None))
            first, last = (parted(case, case.operands, rows) for rows in (slice(1), slice(1, None)))
        for expected, *parts in zip(whole, first, last, strict=True):
            near = 1e-5 * np.abs(expected).max() if operator.product else 0
            np.testing.assert_allclose(np.concatenate(parts), expected, rtol=0, atol=near)


def test_speed_is_that_of_an_operator_that_was_measured() -> None:
    alike = {o.name: o.like for o in OPERATORS.values() if o.like}
    kinds = usual_kernels()
    assert alike
    for name, like in alike.items():
        assert like in OPERATORS, name
        assert any(operator_of(kind) is OPERATORS[like] for kind in kinds), name


def test_costs_of_a_product() -> None:
    """Rates of other kinds are for bytes: an operation of a product has no such rate."""
    plain = [name for name, o in OPERATORS.items() if o.product and o.kind is None]
    attention = OPERATORS["group_query_attention"]
    assert attention.kind is not None
    cached = [attention.kind({"k": dtype}) for dtype in ("f32", "f16", "q8_0")]
    others = [kernel_of(name, {}) for name, o in OPERATORS.items() if not o.product]
    assert {"attention", "attention_int8", "conv2d"} < set(plain)
    for kind in (*plain, *cached):
        assert kernel_of(kind, {}) not in others, kind


def test_steps_and_parts_are_of_operators() -> None:
    for operator in OPERATORS.values():
        assert set(operator.steps) <= {o.name for o in operator.inputs}
        assert set(operator.steps.values()) <= set(operator.attributes)
    assert all(FUSED[o.parts] is o for o in OPERATORS.values() if o.parts)


def test_kernels_may_leave_out_optional_operands(native_backends: list[str]) -> None:
    """NULL is only for optional operands; `bias` is an optional operand of other operators."""
    assert native_backends
    kernels, x, y = Kernels(), np.ones((1, 32), np.float32), np.zeros((1, 16), np.float32)
    kernels.call("matmul_f32", y=y, w=np.ones((16, 32), np.float32), x=x, n=1, k=32, m=16)
    assert (y == 32).all()
    with pytest.raises(ProgramError, match=r"matmul_panels_f32: expected arguments"):
        kernels.call(
            "matmul_panels_f32", y=y, w=np.ones((1, 32, 16), np.float32), x=x, n=1, k=32, m=16,
            activation=0,
        )  # fmt: skip
    kernels.close()
