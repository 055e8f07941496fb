"""When two values agree, and the figures of their difference."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from halfbyte.evaluation.comparison import compare
from halfbyte.evaluation.tolerances import Tolerance
from halfbyte.onnx.files.dtypes import BFLOAT16, narrow

T = Tolerance(rtol=1e-3, atol=0.0, min_cosine=0.9, steps=1)
F32 = np.float32


def test_signalling_nans_are_compared_without_a_warning() -> None:
    values = np.array([1, 0x7F800001], np.uint32).view(F32)
    assert compare(values, values.copy(), T).differing == 0


def test_figures() -> None:
    expected = np.array([3, 4, 0, 0], F32)
    result = np.array([3, 4, 0, 0.5], F32)
    c = compare(result, expected, T)
    rms = math.sqrt(25 / 4)
    assert not c.passed
    assert (c.differing, c.worst, c.max_abs, c.largest) == (1, (3,), 0.5, 4)
    assert c.max_rel == pytest.approx(0.5 / rms)
    assert c.cosine == pytest.approx(25 / (5 * math.sqrt(25.25)))
    assert c.snr_db == pytest.approx(10 * math.log10(25 / 0.25))


@pytest.mark.parametrize(
    ("error", "passed"), [(0.9e-3 * 2.5, True), (1.1e-3 * 2.5, False)], ids=["within", "beyond"]
)
def test_what_cancels_is_measured_by_the_whole(error: float, passed: bool) -> None:
    expected = np.array([3.0, 4, 0, 0])  # root of the mean square: 2.5
    assert compare(expected + np.array([0, 0, 0, error]), expected, T).passed is passed


@pytest.mark.parametrize(("steps", "passed"), [(1, True), (2, False)])
def test_integers_may_differ_by_steps(steps: int, passed: bool) -> None:
    expected = np.array([0, 255, 7], np.uint8)
    result = np.array([steps, 255 - steps, 7], np.uint8)
    c = compare(result, expected, T)
    assert c.passed is passed
    assert c.max_abs == steps


def test_large_integers_are_exact() -> None:
    expected = np.array([2**63 - 1, -(2**63)], np.int64)
    assert compare(expected.copy(), expected, T).passed
    c = compare(expected[::-1].copy(), expected, T)
    assert c.max_abs == float(2**64 - 1)
    assert not compare(expected - np.array([2, -2]), expected, T).passed


@pytest.mark.parametrize(
    ("actual", "expected", "passed"),
    [
        ([1, math.nan, math.inf], [1, math.nan, math.inf], True),
        ([1, 2, math.inf], [1, math.nan, math.inf], False),
        ([1, math.nan, math.inf], [1, 2, math.inf], False),
        ([1, 2, -math.inf], [1, 2, math.inf], False),
        ([1, 2, 3.0], [1, 2, math.inf], False),
    ],
)
def test_nan_and_infinity(actual: list[float], expected: list[float], passed: bool) -> None:
    c = compare(np.array(actual, F32), np.array(expected, F32), T)
    assert c.passed is passed
    if not passed:
        assert c.max_abs == math.inf
        assert c.differing == 1


def test_cosine_can_decide_by_itself() -> None:
    wide = Tolerance(math.inf, math.inf, 0.9, 0)
    expected = np.array([1.0, 0.0])
    assert compare(np.array([1.0, 1.0]), expected, Tolerance(math.inf, 0.0, 0.7, 0)).passed
    assert not compare(np.array([1.0, 1.0]), expected, Tolerance(math.inf, 0.0, 0.9, 0)).passed
    assert compare(np.array([1.0, 1.0]), expected, wide).passed  # all of it may be noise


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_numbers_whose_squares_overflow_or_underflow(scale: float) -> None:
    expected = np.array([1.0, 2.0]) * scale
    assert compare(expected.copy(), expected, T).passed
    json.dumps(compare(expected * 2, expected, T).as_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("actual", "expected", "passed"),
    [
        (np.zeros((2, 3), F32), np.zeros((3, 2), F32), False),
        (np.zeros(2, F32), np.zeros(2, np.float64), False),
        (np.zeros((0, 3), F32), np.zeros((0, 3), F32), True),
        (np.array(["a", "b"], object), np.array(["a", "b"], object), True),
        (np.array(["a", "c"], object), np.array(["a", "b"], object), False),
        ([np.zeros(2), np.ones(1)], [np.zeros(2), np.ones(1)], True),
        ([np.zeros(2), np.ones(1)], [np.zeros(2), np.zeros(1)], False),
        ([np.zeros(2)], [np.zeros(2), np.zeros(1)], False),
        (None, None, True),
        (np.zeros(2), None, False),
        (np.array([True, False]), np.array([True, True]), False),
        (narrow(np.ones(3), BFLOAT16), narrow(np.ones(3), BFLOAT16), True),
        (narrow(np.ones(3), BFLOAT16), narrow(np.full(3, 1.5), BFLOAT16), False),
        (np.ones(2, np.complex64), np.array([1, 1j], np.complex64), False),
    ],
)
def test_kinds_of_values(actual: Any, expected: Any, passed: bool) -> None:
    c = compare(actual, expected, T)
    assert c.passed is passed
    json.dumps(c.as_json(), allow_nan=False)


def test_maps_are_compared_number_by_number() -> None:
    """ZipMap's results: a list of maps from labels to numbers, here in another order."""
    expected = [{"cat": 0.5, "dog": 0.25}, {"cat": 0.125, "dog": 1.0}]
    near = [{"dog": 0.25, "cat": 0.5001}, {"cat": 0.125, "dog": 1.0}]
    assert compare(near, expected, T).passed
    far = [{"cat": 0.5, "dog": 0.25}, {"cat": 0.225, "dog": 1.0}]
    c = compare(far, expected, T)
    assert (c.passed, c.max_abs) == (False, pytest.approx(0.1))
    other = [expected[0], {"cat": 0.125, "cow": 1.0}]
    assert compare(other, expected, T).note == (
        "expected labels ['cat', 'dog'], found ['cat', 'cow']"
    )
