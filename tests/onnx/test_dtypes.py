"""Types that NumPy lacks: every bit pattern and many numbers, compared with ml_dtypes and onnx."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from onnx import numpy_helper

from halfbyte.errors import UnsupportedError
from halfbyte.onnx.files import dtypes

Array = npt.NDArray[Any]

FLOATS = {
    dtypes.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    dtypes.FLOAT8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    dtypes.FLOAT8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    dtypes.FLOAT8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    dtypes.FLOAT8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    dtypes.FLOAT4E2M1: np.dtype(ml_dtypes.float4_e2m1fn),
    dtypes.FLOAT6E2M3: np.dtype(ml_dtypes.float6_e2m3fn),
    dtypes.FLOAT6E3M2: np.dtype(ml_dtypes.float6_e3m2fn),
    dtypes.FLOAT8E8M0: np.dtype(ml_dtypes.float8_e8m0fnu),
}
INTEGERS = {
    dtypes.INT4: np.dtype(ml_dtypes.int4),
    dtypes.UINT4: np.dtype(ml_dtypes.uint4),
    dtypes.INT2: np.dtype(ml_dtypes.int2),
    dtypes.UINT2: np.dtype(ml_dtypes.uint2),
}
SIGNED = [t for t in FLOATS if t != dtypes.FLOAT8E8M0]
EIGHT = [t for t in SIGNED if t.names and t.names[0].startswith("float8")]
NARROWEST = (dtypes.FLOAT4E2M1, dtypes.FLOAT6E2M3, dtypes.FLOAT6E3M2)  # without NaN


def named(dtype: np.dtype[Any]) -> str:
    return str(dtypes.special_name(dtype))


def patterns(array: Array) -> Array:
    return array.view("u2" if array.dtype.itemsize == 2 else "u1")


def every_pattern(dtype: np.dtype[Any]) -> Array:
    """Every bit pattern of a type, as an array of ml_dtypes."""
    theirs = FLOATS[dtype]
    count = 1 << ml_dtypes.finfo(theirs).bits
    return np.arange(count).astype("u2" if theirs.itemsize == 2 else "u1").view(theirs)


@functools.cache
def hard_numbers(dtype: np.dtype[Any]) -> Array:
    """Every number of a type, the ties between them, their neighbors, and random bits."""
    exact = every_pattern(dtype).astype(np.float64)
    exact = np.unique(exact[np.isfinite(exact)])
    step = exact[-1] - exact[-2]
    ties = (np.append(exact, exact[-1] + step)[1:] + exact) / 2
    ties = ties.astype(np.float32)
    bits = np.random.default_rng(0).integers(0, 1 << 32, 20_000, dtype=np.uint32)
    with np.errstate(invalid="ignore"):
        near = [np.nextafter(ties, np.float32(x)) for x in (-np.inf, np.inf)]
        return np.concatenate(
            [exact.astype(np.float32), ties, *near, -ties, bits.view(np.float32),
             np.float32([0.0, -0.0, np.inf, -np.inf, 1e-45, 1e9, -1e9])]
        )  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=named)
def test_every_pattern_is_the_right_number(dtype: np.dtype[Any]) -> None:
    theirs = every_pattern(dtype)
    ours = dtypes.widen(patterns(theirs).view(dtype))
    assert ours.dtype == np.float32
    expected = theirs.astype(np.float32)
    np.testing.assert_array_equal(ours, expected)
    number = ~np.isnan(ours)
    np.testing.assert_array_equal(np.signbit(ours)[number], np.signbit(expected)[number])


@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("dtype", SIGNED, ids=named)
def test_numbers_are_rounded_to_the_nearest(dtype: np.dtype[Any], source: Any) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = hard_numbers(dtype).astype(source)
        theirs = numbers.astype(FLOATS[dtype])
    ours = dtypes.narrow(numbers, dtype, saturate=False)
    nan = np.isnan(numbers)
    if dtype in NARROWEST:
        assert not dtypes.widen(ours)[nan].any()
    else:
        assert np.isnan(dtypes.widen(ours)[nan]).all()
    assert nan.any()
    np.testing.assert_array_equal(patterns(ours)[~nan], patterns(theirs)[~nan])


@pytest.mark.parametrize("dtype", EIGHT, ids=named)
def test_numbers_out_of_range_become_the_largest_number(dtype: np.dtype[Any]) -> None:
    numbers = hard_numbers(dtype)
    ours = dtypes.narrow(numbers, dtype)
    with np.errstate(invalid="ignore"):
        theirs = numpy_helper.saturate_cast(numbers, FLOATS[dtype])
    nan = np.isnan(numbers)
    np.testing.assert_array_equal(patterns(ours)[~nan], patterns(theirs)[~nan])
    assert np.isnan(dtypes.widen(ours)[nan]).all()
    assert np.isinf(dtypes.widen(ours)).sum() == 0


@pytest.mark.parametrize("round_mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [True, False])
def test_powers_of_two_are_rounded_by_mode(round_mode: str, saturate: bool) -> None:
    numbers = np.abs(hard_numbers(dtypes.FLOAT8E8M0))
    # onnx's helper reads the exponents of float32's bits: only normal numbers
    numbers = numbers[(numbers >= 2.0**-126) & (numbers < 2.0**127)]
    ours = dtypes.narrow(numbers, dtypes.FLOAT8E8M0, saturate=saturate, round_mode=round_mode)
    theirs = numpy_helper.to_float8e8m0(numbers, saturate, round_mode)
    np.testing.assert_array_equal(patterns(ours), patterns(theirs))


def test_powers_of_two_out_of_range() -> None:
    """The table of ONNX's Cast-24: 0, NaN, infinity, beyond either end."""
    numbers = np.array([0, np.nan, np.inf, 2.0**128, 2.0**-130])
    up = dtypes.narrow(numbers, dtypes.FLOAT8E8M0)
    assert patterns(up).tolist() == [0, 255, 254, 254, 0]
    nearest = dtypes.narrow(numbers, dtypes.FLOAT8E8M0, saturate=False, round_mode="nearest")
    assert patterns(nearest).tolist() == [255] * 5
    with pytest.raises(UnsupportedError, match="round_mode 'sideways'"):
        dtypes.narrow(numbers, dtypes.FLOAT8E8M0, round_mode="sideways")


@pytest.mark.parametrize("dtype", INTEGERS, ids=named)
def test_integers_keep_their_low_bits(dtype: np.dtype[Any]) -> None:
    info = ml_dtypes.iinfo(INTEGERS[dtype])
    integers = np.arange(-300, 300)
    ours = dtypes.widen(dtypes.narrow(integers, dtype))
    expected = integers.astype(INTEGERS[dtype]).astype(np.int64)
    np.testing.assert_array_equal(ours, expected)
    assert (ours.min(), ours.max()) == (info.min, info.max)
    fractions = np.float32([0.7, 1.5, info.max + 0.9, info.min - 0.9])
    cut = dtypes.widen(dtypes.narrow(fractions, dtype))
    assert cut.tolist() == [0, 1, info.max, info.min]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=named)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_shapes_are_kept(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    narrow = dtypes.narrow(np.ones(shape), dtype)
    assert narrow.shape == shape
    assert narrow.dtype == dtype
    wide = dtypes.widen(narrow)
    assert isinstance(wide, np.ndarray)
    assert wide.shape == shape
    assert (wide == 1).all()
    transposed = dtypes.narrow(np.ones((3, 2)).T, dtype)  # not contiguous
    assert transposed.shape == (2, 3)


def test_types_of_numpy_are_refused() -> None:
    with pytest.raises(TypeError, match="NumPy has"):
        dtypes.widen(np.zeros(2, np.float32))
    with pytest.raises(TypeError, match="NumPy has"):
        dtypes.narrow(np.zeros(2), np.dtype(np.float32))
