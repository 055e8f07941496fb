"""Weight formats against gguf.quants, which defines the bytes."""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from halfbyte.errors import HalfbyteError
from halfbyte.weights import BF16, BY_GGML_TYPE, F16, F32, FORMATS, Q4_0, Q8_0, WeightFormat

F32Array = npt.NDArray[np.float32]
K = 64


def values() -> F32Array:
    """Normal rows, ties, zeros, both signs, tiny and huge numbers."""
    random = np.random.default_rng(0)
    x = random.standard_normal((600, K), np.float32)
    x[0] = 0
    x[1] = -0.0
    x[2, :32], x[2, 32:] = 0, 1
    x[3] = np.arange(-32, 32) / 2
    x[4, :5], x[4, 5:] = [127, 0.5, -1.5, 2.5, 126.5], 0
    x[5, :5], x[5, 5:] = [8, 0.5, -1.5, 2.5, -3.5], 0
    x[6, 3], x[6, 9] = 9, -9
    x[7, 3], x[7, 9] = -9, 9
    x[8:40] *= np.logspace(-34, 4, 32, dtype=np.float32)[:, None]
    x[40:80] = np.round(x[40:80] * 4) / 4
    return x


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_and_values_are_those_of_gguf(name: str) -> None:
    format_, kind = FORMATS[name], gguf.GGMLQuantizationType[name]
    x = values()
    want = gguf.quants.quantize(x, kind)
    found = format_.encode(x)
    np.testing.assert_array_equal(found, want.view(np.uint8))
    assert found.shape == (len(x), format_.row_bytes(K))
    np.testing.assert_array_equal(format_.decode(found), gguf.quants.dequantize(want, kind))


@pytest.mark.parametrize("name", FORMATS)
def test_any_bytes_decode_as_gguf_does(name: str) -> None:
    format_, kind = FORMATS[name], gguf.GGMLQuantizationType[name]
    data = np.random.default_rng(1).integers(0, 256, (200, format_.row_bytes(K)), np.uint8)
    with np.errstate(all="ignore"):
        want = gguf.quants.dequantize(data, kind)
        np.testing.assert_array_equal(format_.decode(data), want)


@pytest.mark.parametrize("format_", [Q4_0, Q8_0])
def test_blocks_whose_scale_has_no_inverse_are_zero(format_: type[WeightFormat]) -> None:
    x = np.full((1, 32), 1e-39, np.float32)
    assert not format_.decode(format_.encode(x)).any()


def test_rounding_of_halves() -> None:
    exact = np.array([[1, 1 + 2**-11, 1 + 3 * 2**-11, 65504, 65519.9, 2**-24, 2**-25]], np.float32)
    want = [1, 1, 1 + 2**-9, 65504, 65504, 2**-24, 0]
    assert F16.decode(F16.encode(exact))[0].tolist() == want
    bits = np.array([[0x3F808000, 0x3F818000, 0x7F800001, 0xFFC00000, 0x7F800000]], np.uint32)
    found = BF16.encode(bits.view(np.float32)).view(np.uint16)[0].tolist()
    assert found == [0x3F80, 0x3F82, 0x7FC0, 0xFFC0, 0x7F80]


@pytest.mark.parametrize("format_", [F16, BF16, Q8_0, Q4_0])
def test_limit_is_where_numbers_stay_finite(format_: type[WeightFormat]) -> None:
    below = np.zeros((1, 32), np.float32)
    below[0, 0] = np.nextafter(np.float32(format_.limit), np.float32(0))
    assert format_.fits(below)
    assert np.isfinite(format_.decode(format_.encode(below))).all()
    above = below.copy()
    above[0, 0] = min(format_.limit * 1.01, 3.4028235e38)
    assert not format_.fits(above)
    with np.errstate(all="ignore"):
        assert not np.isfinite(format_.decode(format_.encode(above))).all()
    for wrong in (np.nan, np.inf, -np.inf):
        above[0, 0] = wrong
        assert not format_.fits(above)


@pytest.mark.parametrize("format_", [Q4_0, Q8_0])
def test_codes_and_scales_are_the_values(format_: type[WeightFormat]) -> None:
    encoded = format_.encode(values())
    q, d = format_.codes(encoded)
    want = format_.decode(encoded).reshape(q.shape)
    np.testing.assert_array_equal(q.astype(np.float32) * d[..., None], want)


def test_rows_are_whole_blocks() -> None:
    with pytest.raises(HalfbyteError, match="100 columns is not a multiple of Q4_0's block of 32"):
        Q4_0.row_bytes(100)
    assert F32.row_bytes(100) == 400


def test_numbers_of_types_are_ggml_s() -> None:
    for number, format_ in BY_GGML_TYPE.items():
        assert gguf.GGMLQuantizationType(number).name == format_.name
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)]
        assert (format_.block, format_.block_bytes) == (block, size)
