"""Encoders of all instruction sets against their definitions, byte for byte."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from halfbyte.core.backends.native import Kernels
from halfbyte.quantize import scale_search
from halfbyte.quantize.scale_search import search
from halfbyte.quantize.steps import KernelSteps, OnePass
from halfbyte.weights import BF16, F16, FORMATS, Q4_0, Q8_0, ScaledFormat, WeightFormat

K = 96
F32Array = npt.NDArray[np.float32]
IN_STEPS = [f for f in FORMATS.values() if issubclass(f, ScaledFormat) and f not in (Q4_0, Q8_0)]


def rows() -> F32Array:
    """Normal rows, ties, zeros, tiny and huge numbers, outliers, the largest with both signs."""
    x = np.random.default_rng(0).standard_normal((40, K), np.float32)
    x[0] = 0
    x[1, :32], x[1, 40] = -0.0, -0.0
    x[2] = np.round(x[2] * 2) / 2
    x[3, :32] = np.arange(-16, 16) / 2
    x[4, :4] = [8, 0.5, 1.5, 2.5]
    x[4, 4:32] = 0
    x[5, :4], x[5, 4:32] = [127, 0.5, -1.5, 2.5], 0
    x[6, 3], x[6, 9] = 9, -9
    x[7, 3], x[7, 9] = -9, 9
    x[8] *= 1e-38
    x[9] *= 1e-42
    x[10] *= 1e-7
    x[11] *= 6e4
    x[12, 5] = 400
    x[13] = 1
    x[14, :32] = 1e-45
    return x


def wide_rows() -> F32Array:
    """The same, 512 wide, and of one sign or with both zeros."""
    x = np.resize(rows(), (40, 512)).copy()
    x[15], x[16] = np.abs(x[15]), -np.abs(x[16])
    x[17, ::2], x[17, 1::2] = 0, -0.0
    x[18] = np.abs(x[18]) * np.tile([0, -0.0, 1, 1], 128)
    x[19] = np.copysign(0, np.random.default_rng(2).standard_normal(512))
    x[20] = np.copysign(np.maximum(x[20], 0), x[20])
    return x


@pytest.fixture(params=["F16", "BF16", "Q8_0", "Q4_0"])
def format_(request: pytest.FixtureRequest) -> type[WeightFormat]:
    return FORMATS[request.param]


def test_plain_rounding(native_backends: list[str], format_: type[WeightFormat]) -> None:
    x = rows()
    if format_ in (F16, BF16):
        odd = [np.inf, -np.inf, np.nan, 65519.9, 65520, -65520, 3.4e38, 1e-8, 5.9604645e-8, 2.9e-8]
        x = np.vstack([x, np.resize(np.array(odd, np.float32), (2, K))])
    with np.errstate(all="ignore"):
        want = format_.encode(x)
    for backend in native_backends:
        kernels = Kernels(backend.removeprefix("native-"))
        actual = np.full_like(want, 0xA5)
        name = f"encode_{format_.name.lower()}"
        kernels.call(name, w=actual, x=x, n=len(x), k=K)
        np.testing.assert_array_equal(actual, want)


def test_odd_lengths_of_rows(native_backends: list[str]) -> None:
    for k in (1, 15, 17, 33):
        x = rows()[:3, :k].copy()
        for format_ in (F16, BF16):
            for backend in native_backends:
                actual = np.full((3, 2 * k + 8), 0xA5, np.uint8)
                flat = actual.reshape(-1)[: 6 * k]
                kernels = Kernels(backend.removeprefix("native-"))
                kernels.call(f"encode_{format_.name.lower()}", w=flat, x=x, n=3, k=k)
                np.testing.assert_array_equal(flat, format_.encode(x).reshape(-1))
                assert (actual.reshape(-1)[6 * k :] == 0xA5).all()


@pytest.mark.parametrize(
    "name", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "MXFP4", "TQ2_0"]
)
@pytest.mark.parametrize("weights", ["ones", "random", "zeros"])
def test_search(native_backends: list[str], name: str, weights: str) -> None:
    """In one pass over tiles of sixteen rows, the last one of which is incomplete."""
    format_ = FORMATS[name]
    assert issubclass(format_, ScaledFormat)
    x = rows() if format_.block == 32 else wide_rows()
    importance = np.ones(x.shape[1], np.float32)
    if weights == "random":
        importance = np.random.default_rng(1).random(x.shape[1], np.float32)
        importance[32:64] = 0
    if weights == "zeros":
        importance[:] = 0
    want, want_error = search(x, importance, format_)
    for backend in native_backends:
        kernels = Kernels(backend.removeprefix("native-"), threads=2)
        found = OnePass(kernels).search(format_, x, importance)
        assert found is not None
        np.testing.assert_array_equal(found[0], want)
        np.testing.assert_array_equal(found[1], want_error)
        kernels.close()


@pytest.mark.parametrize("format_", IN_STEPS)
def test_steps(native_backends: list[str], format_: type[ScaledFormat]) -> None:
    """Step by step, in all formats: with importance, and plain."""
    x, importance = wide_rows(), np.random.default_rng(1).random(512, np.float32)
    importance[32:64] = 0
    want, want_error = search(x, importance, format_)
    with np.errstate(all="ignore"):
        plain = format_.encode(x)
    for backend in native_backends:
        kernels = Kernels(backend.removeprefix("native-"), threads=2)
        rows, error = search(x, importance, format_, KernelSteps(kernels))
        np.testing.assert_array_equal(rows, want)
        np.testing.assert_array_equal(error, want_error)
        if not format_.powers:
            rows = scale_search.encode(x, format_, KernelSteps(kernels))
            np.testing.assert_array_equal(rows, plain)
        kernels.close()


def test_starts_need_no_lower_bound() -> None:
    """Kernels clip starts with minima at the upper end only: the smallest number rounds to zero."""
    added = [plus for f in IN_STEPS if f.minimum for _, plus in f.candidates()]
    assert added
    assert np.rint(np.float32(min(added))) == 0


@pytest.mark.parametrize("format_", [Q8_0, Q4_0])
def test_search_gains_and_never_loses(format_: type[WeightFormat]) -> None:
    x = np.random.default_rng(2).standard_normal((200, 256), np.float32)
    importance = np.random.default_rng(3).random(256, np.float32)
    encoded, error = search(x, importance, format_)
    assert (error[:, 1] <= error[:, 0]).all()
    gain = 10 * np.log10(error[:, 0].sum() / error[:, 1].sum())
    assert gain > 0.4  # dB
    # The errors it reports are those of the bytes.
    plain = format_.decode(format_.encode(x))
    for column, decoded in ((0, plain), (1, format_.decode(encoded))):
        actual = (importance.astype(np.float64) * (x - decoded.astype(np.float64)) ** 2).sum(axis=1)
        np.testing.assert_allclose(error[:, column], actual, rtol=1e-4)


def test_sums(native_backends: list[str]) -> None:
    x, y = rows()[15:23], rows()[23:31] * 0.5
    wide = x.astype(np.float64)
    for backend in native_backends:
        kernels = Kernels(backend.removeprefix("native-"))
        sums, energy = np.empty((8, 2), np.float32), np.ones(K, np.float32)
        kernels.call("square_error", s=sums, x=x, y=y, n=8, k=K)
        kernels.call("column_energy", s=energy, x=x, n=8, k=K)
        np.testing.assert_allclose(sums[:, 0], (wide**2).sum(axis=1), rtol=1e-5)
        np.testing.assert_allclose(sums[:, 1], ((wide - y) ** 2).sum(axis=1), rtol=1e-5)
        np.testing.assert_allclose(energy, 1 + (wide**2).sum(axis=0), rtol=1e-5)
