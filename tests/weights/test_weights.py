"""Weight formats against gguf.quants, which defines the bytes."""

from __future__ import annotations

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from halfbyte.errors import HalfbyteError
from halfbyte.weights import (
    BF16,
    BY_GGML_TYPE,
    F16,
    F32,
    FORMATS,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    Q2_K,
    Q3_K,
    Q4_0,
    Q4_K,
    Q5_K,
    Q6_K,
    BlockFormat,
    WeightFormat,
)
from halfbyte.weights.grids import Grid

F32Array = npt.NDArray[np.float32]
K = 256
BLOCKS = [f for f in FORMATS.values() if issubclass(f, BlockFormat)]
DECODED_ONLY = (Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS)  # by gguf.quants
ENCODED = [name for name, f in FORMATS.items() if f not in DECODED_ONLY and not f.in_memory]


def values() -> F32Array:
    """Normal rows, ties, zeros, both signs, tiny and huge numbers."""
    random = np.random.default_rng(0)
    x = random.standard_normal((600, K), np.float32)
    x[0] = 0
    x[1] = -0.0
    x[2, :32], x[2, 32:] = 0, 1
    x[3] = np.arange(-128, 128) / 2
    x[4, :5], x[4, 5:] = [127, 0.5, -1.5, 2.5, 126.5], 0
    x[5, :5], x[5, 5:] = [8, 0.5, -1.5, 2.5, -3.5], 0
    x[6, 3], x[6, 9] = 9, -9
    x[7, 3], x[7, 9] = -9, 9
    x[8:40] *= np.logspace(-34, 4, 32, dtype=np.float32)[:, None]
    x[40:80] = np.round(x[40:80] * 4) / 4
    return x


@pytest.mark.parametrize("name", ENCODED)
def test_bytes_and_values_are_those_of_gguf(name: str) -> None:
    format_, kind = FORMATS[name], gguf.GGMLQuantizationType[name]
    x = values()
    expected = gguf.quants.quantize(x, kind)
    encoded = format_.encode(x)
    np.testing.assert_array_equal(encoded, expected.view(np.uint8))
    assert encoded.shape == (len(x), format_.row_bytes(K))
    np.testing.assert_array_equal(format_.decode(encoded), gguf.quants.dequantize(expected, kind))


@pytest.mark.parametrize("name", FORMATS)
def test_any_bytes_decode_as_gguf_does(name: str) -> None:
    format_, kind = FORMATS[name], gguf.GGMLQuantizationType[name]
    random = np.random.default_rng(1)
    data = random.integers(0, 256, (2000, format_.row_bytes(K)), np.uint8)
    data[:8] = np.array([0, 0xFF, 0x7B, 0x7C, 0x80, 1, 0xFC, 0x7F], np.uint8)[:, None]
    decoded = format_.decode(data)  # without a warning, for any bytes
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(data, kind)
    np.testing.assert_array_equal(decoded.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("format_", BLOCKS)
def test_stored_integers_are_those_read(format_: type[BlockFormat]) -> None:
    """`store_quantized` and `store_scales` write exactly the bits that the getters read."""
    rows = np.random.default_rng(3).integers(0, 256, (50, format_.row_bytes(512)), np.uint8)
    blocks, copy = rows.view(format_.layout), np.zeros_like(rows).view(format_.layout)
    format_.store_quantized(copy, format_.get_quantized(blocks))
    for name in blocks.dtype.names or ():
        if name not in ("qs", "qh", "ql", "hmask"):
            assert not copy[name].any()
            copy[name] = blocks[name]
    np.testing.assert_array_equal(copy.view(np.uint8), rows)
    if format_ in (Q2_K, Q3_K, Q4_K, Q5_K, IQ4_XS):
        for name in {"scales", "scales_h", "scales_l"} & {*blocks.dtype.names}:
            copy[name] = 0
        scales = format_.get_scales(blocks)  # type: ignore[attr-defined]
        format_.store_scales(  # type: ignore[attr-defined]
            copy, *(scales if isinstance(scales, tuple) else (scales,))
        )
        np.testing.assert_array_equal(copy.view(np.uint8), rows)


@pytest.mark.parametrize(("format_", "bits"), [(Q4_K, 4), (Q5_K, 5), (Q6_K, 6)])
def test_k_quants_round_to_nearest(format_: type[WeightFormat], bits: int) -> None:
    """Errors are at most half a step of the block, plus the rounding of its scales."""
    x = np.random.default_rng(4).standard_normal((100, 512), np.float32)
    decoded = format_.decode(format_.encode(x))
    blocks = x.reshape(100, -1, 32)
    span = blocks.max(-1) - np.minimum(blocks.min(-1), 0)
    if format_ is Q6_K:
        span = 2 * np.abs(blocks).max(-1)
    step = span / (2**bits - 1) * 0.5 + np.abs(x.reshape(100, -1, 256)).max(-1).repeat(8, 1) / 40
    assert (np.abs(decoded - x).reshape(blocks.shape) <= step[..., None]).all()
    noise, plain = np.square(decoded - x).mean(), np.square(np.float32(2**-bits) * span).mean() / 12
    assert noise < 1.3 * plain
    np.testing.assert_array_equal(format_.decode(format_.encode(np.zeros_like(x))), 0)


def numbers(format_: type[WeightFormat]) -> dict[str, F32Array]:
    """Rows [n, 32] that are hard to round."""
    random = np.random.default_rng(2)
    sign = random.choice([-1, 1], (5000, 1))
    halves = random.integers(-254, 255, (5000, 32)) / 2
    halves[:, :1] = 127 * sign
    steps = random.integers(-16, 17, (5000, 32)) / 2 * random.integers(1, 6, (5000, 1))
    steps[:, 5:6] = 8 * sign
    scales = 2.0 ** random.integers(-120, 15, (5000, 1))
    bits = random.integers(0, 1 << 32, (5000, 32), np.uint32).view(np.float32)
    cases = {
        "halves of Q8_0": halves,
        "halves of Q4_0": steps,
        "ties for the largest": random.choice([-1.0, 1.0], (5000, 32)),
        "mostly zeros": halves * (random.random((5000, 32)) < 0.05),
        "all sizes": random.standard_normal((5000, 32)) * scales,
        "any bits": np.where(np.abs(bits) < min(format_.limit, 1e38), bits, 0),
    }
    return {name: value.astype(np.float32) for name, value in cases.items()}


@pytest.mark.parametrize("name", ENCODED)
def test_bytes_of_numbers_that_are_hard_to_round(name: str) -> None:
    format_, kind = FORMATS[name], gguf.GGMLQuantizationType[name]
    for label, x in numbers(format_).items():
        largest = np.abs(x).max(axis=1)
        x = x[(largest == 0) | (largest > 2.0**-110)]  # the scale has an inverse
        assert len(x) > 3000, label
        assert format_.fits(x), label
        expected = gguf.quants.quantize(x, kind).view(np.uint8)
        np.testing.assert_array_equal(format_.encode(x), expected, label)


def test_every_f16_and_bf16() -> None:
    """All 65,536 patterns are decoded as gguf does, and encoded back to themselves."""
    bits = np.arange(1 << 16, dtype="<u2").reshape(1, -1)
    for format_ in (F16, BF16):
        values = format_.decode(bits.view(np.uint8))
        expected = gguf.quants.dequantize(
            bits.view(np.uint8), gguf.GGMLQuantizationType[format_.name]
        )
        np.testing.assert_array_equal(
            values.view(np.uint32), expected.view(np.uint32).reshape(1, -1)
        )
        back = format_.encode(values).view("<u2")
        number = ~np.isnan(values)
        np.testing.assert_array_equal(back[number], bits[number])
        assert np.isnan(format_.decode(back.view(np.uint8))[~number]).all()


@pytest.mark.parametrize("format_", [F16, BF16])
def test_halfway_numbers_round_to_even(format_: type[WeightFormat]) -> None:
    bits = np.arange((0x7BFF if format_ is F16 else 0x7F7F), dtype="<u2").reshape(1, -1)
    low, high = (format_.decode((bits + i).astype("<u2").view(np.uint8)) for i in (0, 1))
    middle = (low.astype(np.float64) + high) / 2
    half = middle.astype(np.float32)
    np.testing.assert_array_equal(half, middle)
    even = np.where(bits % 2, bits + 1, bits)
    for sign, top in ((1, 0), (-1, 0x8000)):
        encoded = format_.encode(np.float32(sign) * half).view("<u2")
        np.testing.assert_array_equal(encoded, even + top)
    below, above = np.nextafter(half, low), np.nextafter(half, high)
    np.testing.assert_array_equal(format_.encode(below).view("<u2"), bits)
    np.testing.assert_array_equal(format_.encode(above).view("<u2"), bits + 1)


@pytest.mark.parametrize("format_", BLOCKS)
def test_blocks_whose_scale_has_no_inverse_are_zero(format_: type[WeightFormat]) -> None:
    x = np.full((1, K), 1e-39, np.float32)
    assert not format_.decode(format_.encode(x)).any()


def test_rounding_of_f16_and_bf16() -> None:
    exact = np.array([[1, 1 + 2**-11, 1 + 3 * 2**-11, 65504, 65519.9, 2**-24, 2**-25]], np.float32)
    expected = [1, 1, 1 + 2**-9, 65504, 65504, 2**-24, 0]
    assert F16.decode(F16.encode(exact))[0].tolist() == expected
    bits = np.array([[0x3F808000, 0x3F818000, 0x7F800001, 0xFFC00000, 0x7F800000]], np.uint32)
    encoded = BF16.encode(bits.view(np.float32)).view(np.uint16)[0].tolist()
    assert encoded == [0x3F80, 0x3F82, 0x7FC0, 0xFFC0, 0x7F80]


@pytest.mark.parametrize("format_", [F32, F16, BF16])
def test_numbers_of_a_row_may_be_apart(format_: type[WeightFormat]) -> None:
    """As those of one column, or of a transposed matrix."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for apart in (x.T, x[:, ::2]):
        np.testing.assert_array_equal(format_.encode(apart), format_.encode(apart.copy("C")))


@pytest.mark.parametrize("format_", [F16, BF16, *(f for f in BLOCKS if f is not MXFP4)])
def test_limit_is_where_numbers_stay_finite(format_: type[WeightFormat]) -> None:
    below = np.zeros((1, K), np.float32)
    below[0, 0] = -np.nextafter(np.float32(format_.limit), np.float32(0))
    assert format_.fits(below)
    assert np.isfinite(format_.decode(format_.encode(below))).all()
    above = below.copy()
    above[0, 0] = -min(format_.limit * 1.01, 3.4028235e38)
    assert not format_.fits(above)
    with np.errstate(all="ignore"):
        assert not np.isfinite(format_.decode(format_.encode(above))).all()
    for wrong in (np.nan, np.inf, -np.inf):
        above[0, 0] = wrong
        assert not format_.fits(above)


@pytest.mark.parametrize("format_", BLOCKS)
def test_integers_and_scales_are_the_values(format_: type[WeightFormat]) -> None:
    encoded = format_.encode(values())
    q, d, m = format_.quantized(encoded)
    expected = format_.decode(encoded).reshape(q.shape)
    minima = np.zeros_like(d) if m is None else m
    np.testing.assert_array_equal(q.astype(np.float32) * d[..., None] + minima[..., None], expected)


def test_rows_are_whole_blocks() -> None:
    with pytest.raises(HalfbyteError, match="100 columns is not a multiple of Q4_0's block of 32"):
        Q4_0.row_bytes(100)
    assert F32.row_bytes(100) == 400


def test_all_types_of_gguf() -> None:
    """Every quantized type of which a file may have weights."""
    of_others = {"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64", "Q1_0"}
    assert {t.name for t in gguf.GGMLQuantizationType} - of_others == {*FORMATS}


@pytest.mark.parametrize("format_", [f for f in FORMATS.values() if f.in_memory])
def test_layouts_of_memory_have_the_same_numbers(format_: type[WeightFormat]) -> None:
    """Integers and scales in memory are the numbers of the file, bit for bit."""
    layout = format_.in_memory
    assert layout is not None
    rows = np.random.default_rng(5).integers(0, 256, (64, format_.row_bytes(512)), np.uint8)
    memory = format_.converted(rows)
    assert memory.shape == (64, layout.row_bytes(512))
    with np.errstate(all="ignore"):
        q, d, m = layout.quantized(memory)
        values = q.astype(np.float32) * d[..., None] + (0 if m is None else m[..., None])
        np.testing.assert_array_equal(values.reshape(64, 512), format_.decode(rows))


def test_numbers_of_types_are_those_of_ggml() -> None:
    for number, format_ in BY_GGML_TYPE.items():
        assert gguf.GGMLQuantizationType(number).name == format_.name
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)]
        assert (format_.block, format_.block_bytes) == (block, size)


@pytest.mark.parametrize("format_", [f for f in FORMATS.values() if issubclass(f, Grid)])
def test_no_index_is_beyond_its_grid(format_: type[Grid]) -> None:
    """A grid has a vector for each number that an index's bits can make."""
    bits = format_.low.bits + (format_.high.bits if format_.high is not None else 0)
    grid = format_.conversion().grid
    assert len(grid) == 1 << bits
    assert len(np.unique(grid, axis=0)) == len(grid)
