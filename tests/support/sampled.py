"""Cases of which `make test` runs a sample, the same each time, and `make test-long` the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def often(cases: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """Parameters of a test, marked ``long`` but for those in `kept`, which must be among them."""
    every = list(cases)
    assert all(case in every for case in kept), kept
    return [case if case in kept else _long(case) for case in every]


def sampled(cases: Iterable[Any], step: int) -> list[Any]:
    """Parameters of a test, marked ``long`` but for every `step`-th, from the first on."""
    return [_long(case) if number % step else case for number, case in enumerate(cases)]


def _long(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.long)
