"""Definitions where addresses have 32 bits, as in WebAssembly, with ONNX's int64 indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.onnx.node_cases import check, exclusions, node_cases
from tests.onnx.test_contrib import CASES, defined

from halfbyte.onnx.reference.arrays import take

take_by_numpy = np.take


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The rule of NumPy 2.0 and older on such a machine, and a list of violations."""
    node_cases()  # for which onnx takes as it likes
    broken: list[str] = []

    def strict(a: Any, indices: Any, axis: int | None = None, **options: Any) -> Any:
        dtype = np.asarray(indices).dtype
        if not np.can_cast(dtype, np.int32, "safe"):
            broken.append(f"take of {np.shape(a)} by {dtype}")
        return take_by_numpy(a, indices, axis, **options)

    monkeypatch.setattr(np, "intp", np.int32)
    monkeypatch.setattr(np, "take", strict)
    return broken


def test_no_definition_takes_by_int64(narrow: list[str]) -> None:
    """ONNX's own tests and those of ONNX Runtime's operators."""
    excluded = exclusions()
    for case in (c for c in node_cases() if c.kind == "node" and c.name not in excluded):
        check(case, values=False)
        assert narrow == [], case.name
    for contrib in CASES:
        defined(contrib)
        assert narrow == [], str(contrib)


def test_an_index_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """2^32 + 1 is not element 1."""
    monkeypatch.setattr(np, "intp", np.int32)
    x = np.arange(12.0).reshape(3, 4)
    assert take(x, np.array([[2, -1]], np.int64), 0).tolist() == [[x[2].tolist()] * 2]
    with pytest.raises(IndexError, match="an index beyond axis 1 of size 4"):
        take(x, np.array([(1 << 32) + 1]), 1)
