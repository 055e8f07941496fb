"""Folders in GPTQ, AWQ, compressed-tensors and FP8, written here as their quantizers write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from tests.formats.folders import CONFIG, trained_weights, write_folder, write_header, write_json

import halfbyte
from halfbyte.errors import HalfbyteError
from halfbyte.quantize import quantize_file
from halfbyte.text.opening import open_model

Array = npt.NDArray[Any]
Parts = dict[str, Array]
GROUP = 32
DTYPES = {
    "b1": "U8",
    "i4": "I32",
    "i8": "I64",
    "i1": "I8",
    "u1": "F8_E4M3",
    "f4": "F32",
    "f2": "F16",
}
NAME = "model.layers.1.mlp.down_proj"  # [32, 64]


def packed(values: Array, bits: int, axis: int, places: tuple[int, ...] = ()) -> Array:
    """Integers in words of 32 bits along an axis, from the lowest bits up."""
    per = 32 // bits
    moved = np.moveaxis(values, axis, -1)
    words = np.zeros((*moved.shape[:-1], moved.shape[-1] // per), np.uint32)
    for place, source in enumerate(places or range(per)):
        words |= moved[..., source::per].astype(np.uint32) << np.uint32(bits * place)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis)).view(np.int32)


def grid(
    random: np.random.Generator, shape: tuple[int, int], bits: int, zeros: bool, group: int = GROUP
) -> tuple[Array, Array, Array]:
    """Integers [m, k], scales that float16 holds and zero points [m, groups]."""
    rows, columns = shape
    q = random.integers(0, 1 << bits, shape)
    scales = random.uniform(0.01, 0.1, (rows, columns // group)).astype(np.float16)
    middle = 1 << (bits - 1)
    z = random.integers(1, 1 << bits, scales.shape) if zeros else np.full(scales.shape, middle)
    return q, scales, z


def values(q: Array, scales: Array, z: Array) -> Array:
    """Each weight, one by one."""
    group = q.shape[1] // scales.shape[1]
    result = np.empty(q.shape, np.float32)
    for row, column in np.ndindex(*q.shape):
        part = column // group
        result[row, column] = np.float32(q[row, column] - z[row, part]) * np.float32(
            scales[row, part]
        )
    return result


def gptq(random: np.random.Generator, shape: tuple[int, int], **how: Any) -> tuple[Parts, Array]:
    bits = how.get("bits", 4)
    q, scales, z = grid(random, shape, bits, how.get("zeros", False))
    index = np.arange(shape[1]) // GROUP
    expected = values(q, scales, z)
    if how.get("order"):
        index = random.permutation(index)
        expected = (q - z[:, index]).astype(np.float32) * scales.astype(np.float32)[:, index]
    less = 0 if how.get("v2") else 1
    return {
        "qweight": packed(q.T, bits, 0), "qzeros": packed((z - less).T, bits, 1),
        "scales": scales.T, "g_idx": index.astype(np.int32),
    }, expected  # fmt: skip


def awq(random: np.random.Generator, shape: tuple[int, int], **how: Any) -> tuple[Parts, Array]:
    q, scales, z = grid(random, shape, 4, how.get("zeros", True))
    places = (0, 2, 4, 6, 1, 3, 5, 7)
    return {
        "qweight": packed(q.T, 4, 1, places), "qzeros": packed(z.T, 4, 1, places),
        "scales": scales.T,
    }, values(q, scales, z)  # fmt: skip


def words(random: np.random.Generator, shape: tuple[int, int], **how: Any) -> tuple[Parts, Array]:
    bits = how.get("bits", 4)
    group = shape[1] if how.get("rows") else GROUP
    q, scales, z = grid(random, shape, bits, how.get("zeros", False), group)
    if how.get("tiny"):  # float16 cannot hold them
        scales = scales.astype(np.float32) * np.float32(1e-6)
    parts = {
        "weight_packed": packed(q, bits, 1), "weight_scale": scales,
        "weight_shape": np.array(shape, np.int64),
    }  # fmt: skip
    if how.get("zeros"):
        parts["weight_zero_point"] = packed(z, bits, 0)
    return parts, values(q, scales, z)


def int8(random: np.random.Generator, shape: tuple[int, int], **how: Any) -> tuple[Parts, Array]:
    q = random.integers(-128, 128, shape).astype(np.int8)
    scales = random.uniform(0.001, 0.01, (shape[0], 1)).astype(np.float16)
    parts: Parts = {"weight": q, "weight_scale": scales}
    return parts, q.astype(np.float32) * scales.astype(np.float32)


def fp8(random: np.random.Generator, shape: tuple[int, int], **how: Any) -> tuple[Parts, Array]:
    block = how.get("block", 16)
    x = random.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn)
    scales = random.uniform(0.5, 2, (-(-shape[0] // block), -(-shape[1] // block)))
    scales = scales.astype(np.float32)
    each = np.repeat(np.repeat(scales, block, 0)[: shape[0]], block, 1)[:, : shape[1]]
    parts: Parts = {"weight": x.view(np.uint8), "weight_scale_inv": scales}
    return parts, x.astype(np.float32) * each


def ternary(random: np.random.Generator, shape: tuple[int, int], **how: Any) -> tuple[Parts, Array]:
    """Quarters of the rows in two bits each, lowest first."""
    q = random.integers(-1, 2, shape)
    quarters = (q + 1).reshape(4, -1, shape[1]).astype(np.uint8)
    packed = sum(quarter << np.uint8(2 * i) for i, quarter in enumerate(quarters))
    scale = np.array([how.get("scale", 1.5)], np.float32)
    factor = 1 / scale if how.get("reciprocal") else scale
    parts: Parts = {"weight": np.asarray(packed).view(np.bool_), "weight_scale": scale}
    return parts, (q * factor).astype(np.float32)


_OFFLINE = {"quant_method": "bitnet", "linear_class": "autobitlinear"}
METHODS: dict[str, tuple[Callable[..., tuple[Parts, Array]], dict[str, Any], dict[str, Any], str]]
METHODS = {  # how a matrix is made, with which options, config.json's entry, its type here
    "gptq": (gptq, {}, {"quant_method": "gptq", "bits": 4}, "Q4_0"),
    "gptq zeros": (gptq, {"zeros": True}, {"quant_method": "gptq", "bits": 4}, "Q5_0"),
    "gptq order": (gptq, {"order": True}, {"quant_method": "gptq", "bits": 4}, "F32"),
    "gptq 8": (gptq, {"bits": 8}, {"quant_method": "gptq", "bits": 8}, "Q8_0"),
    "gptq 2": (gptq, {"bits": 2}, {"quant_method": "gptq", "bits": 2}, "Q4_0"),
    "gptq v2": (
        gptq, {"v2": True, "zeros": True},
        {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}, "Q5_0",
    ),
    "awq": (awq, {}, {"quant_method": "awq", "bits": 4, "version": "gemm"}, "Q5_0"),
    "awq without zeros": (awq, {"zeros": False}, {"quant_method": "awq", "bits": 4}, "Q4_0"),
    "compressed": (words, {}, {"quant_method": "compressed-tensors"}, "Q4_0"),
    "compressed rows": (words, {"rows": True}, {"quant_method": "compressed-tensors"}, "Q4_0"),
    "compressed zeros": (words, {"zeros": True}, {"quant_method": "compressed-tensors"}, "Q5_0"),
    "compressed 8": (words, {"bits": 8}, {"quant_method": "compressed-tensors"}, "Q8_0"),
    "compressed tiny": (words, {"tiny": True}, {"quant_method": "compressed-tensors"}, "F32"),
    "compressed int8": (int8, {}, {"quant_method": "compressed-tensors"}, "Q8_0"),
    "bitnet": (ternary, {}, {**_OFFLINE, "quantization_mode": "offline"}, "Q4_0"),
    "bitnet linear": (
        ternary, {"scale": 4, "reciprocal": True}, {"quant_method": "bitnet"}, "Q4_0",
    ),
    "fp8": (fp8, {}, {"quant_method": "fp8", "weight_block_size": [16, 16]}, "F32"),
    "fp8 ends": (
        fp8, {"block": 24}, {"quant_method": "fp8", "weight_block_size": [24, 24]}, "F32",
    ),
}  # fmt: skip


def write(folder: Path, name: str, spoil: Callable[[Parts], object] = lambda parts: None) -> Array:
    """A folder with one quantized matrix; returns its weights."""
    make, how, entry, _ = METHODS[name]
    write_folder(folder)
    tensors: dict[str, Array] = dict(trained_weights())
    parts, expected = make(np.random.default_rng(0), tensors.pop(f"{NAME}.weight").shape, **how)
    spoil(parts)
    tensors |= {f"{NAME}.{part}": array for part, array in parts.items()}
    write_tensors(folder / "model.safetensors", tensors)
    write_json(folder / "config.json", {**CONFIG, "quantization_config": entry})
    return expected


def write_tensors(path: Path, tensors: dict[str, Array]) -> None:
    header, body = {}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        kind = "BF16" if array.dtype == ml_dtypes.bfloat16 else DTYPES[array.dtype.str[1:]]
        header[name] = {
            "dtype": kind, "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(raw)],
        }  # fmt: skip
        body += raw
    write_header(path, header, body)


@pytest.mark.parametrize("name", METHODS)
def test_no_weight_is_rounded(name: str, tmp_path: Path) -> None:
    expected = write(tmp_path / "m", name)
    file = open_model(tmp_path / "m")
    tensor = file.tensors["blk.1.ffn_down.weight"]
    assert tensor.format.name == METHODS[name][3]
    np.testing.assert_array_equal(tensor.decode().reshape(expected.shape), expected)
    rows = tensor.format.decode(tensor.take(9, 6))
    np.testing.assert_array_equal(rows, expected[9:15])
    note = f"{METHODS[name][2]['quant_method']}: 1 quantized matrices as {METHODS[name][3]}"
    assert note in file.notes[0]
    assert ("without rounding" in file.notes[0]) == (METHODS[name][3] != "F32")


@pytest.mark.parametrize("name", ["gptq", "awq"])
def test_it_runs_and_is_written(name: str, tmp_path: Path) -> None:
    """In a file its bytes are the same; only what was not quantized is rounded."""
    write(tmp_path / "m", name)
    with halfbyte.load(tmp_path / "m") as model:
        assert np.isfinite(model.logits([1, 2, 3])).all()
    report = quantize_file(tmp_path / "m", "int4", tmp_path / "out.gguf")
    before, after = (open_model(path).tensors for path in (tmp_path / "m", report.output))
    tensor = after["blk.1.ffn_down.weight"]
    assert tensor.format.name == METHODS[name][3]
    np.testing.assert_array_equal(tensor.data, before["blk.1.ffn_down.weight"].data)
    assert after["blk.0.ffn_down.weight"].format.name == "Q4_0"
    assert f"{METHODS[name][3]}, without rounding" in report.notes[0]
    quantize_file(tmp_path / "m", "int8", tmp_path / "8.gguf", requantize=True)
    widened = open_model(tmp_path / "8.gguf").tensors["blk.1.ffn_down.weight"]
    assert widened.format.name == "Q8_0"


def write_wide(folder: Path, entry: dict[str, Any], down: Parts) -> None:
    """A folder whose matrices `NAME` have 256 columns; these are the parts of one of them."""
    write_folder(folder)
    tensors: dict[str, Array] = dict(trained_weights())
    random = np.random.default_rng(2)
    for name in [name for name in tensors if ".mlp." in name]:
        shape = (32, 256) if "down" in name else (256, 32)
        tensors[name] = random.uniform(-0.3, 0.3, shape).astype(np.float32)
    del tensors[f"{NAME}.weight"]
    tensors |= {f"{NAME}.{part}": array for part, array in down.items()}
    write_tensors(folder / "model.safetensors", tensors)
    config = {**CONFIG, "intermediate_size": 256, "quantization_config": entry}
    write_json(folder / "config.json", config)


def test_threes_stay_threes(tmp_path: Path) -> None:
    """They are in TQ2_0, and stay there in a file, which gives the same logits to the bit."""
    parts, expected = ternary(np.random.default_rng(1), (32, 256))
    write_wide(tmp_path / "m", {**_OFFLINE, "quantization_mode": "offline"}, parts)
    report = quantize_file(tmp_path / "m", "fp16", tmp_path / "out.gguf", keep=[("*", "F32")])
    tensor = open_model(tmp_path / "m").tensors["blk.1.ffn_down.weight"]
    assert tensor.format.name == "TQ2_0"
    np.testing.assert_array_equal(tensor.decode().reshape(expected.shape), expected)
    assert "1 quantized matrices as TQ2_0, without rounding" in report.notes[0]
    four = quantize_file(tmp_path / "m", "int4", tmp_path / "4.gguf")
    written = open_model(four.output).tensors["blk.1.ffn_down.weight"]
    assert written.format.name == "TQ2_0"
    np.testing.assert_array_equal(written.data, tensor.data)


def test_threes_that_are_made_at_each_run(tmp_path: Path) -> None:
    """The matrix is in BF16; it is rounded by its mean magnitude, as `transformers` does."""
    random = np.random.default_rng(1)
    x = random.standard_normal((32, 256)).astype(ml_dtypes.bfloat16)
    mean = np.abs(x.astype(np.float32)).mean(dtype=np.float64).astype(np.float32)
    q = np.clip(np.rint(x.astype(np.float32) * (1 / mean)), -1, 1)
    expected = (q * mean).astype(ml_dtypes.bfloat16).astype(np.float32)
    write_wide(tmp_path / "m", {**_OFFLINE, "quantization_mode": "online"}, {"weight": x})
    file = open_model(tmp_path / "m")
    tensor = file.tensors["blk.1.ffn_down.weight"]
    assert tensor.format.name == "TQ2_0"
    np.testing.assert_array_equal(tensor.decode().reshape(expected.shape), expected)
    np.testing.assert_array_equal(tensor.format.decode(tensor.take(9, 6)), expected[9:15])
    assert file.notes[0].startswith("bitnet: 14 quantized matrices as Q4_0 and TQ2_0")


def without(part: str) -> Callable[[Parts], object]:
    return lambda parts: parts.pop(part)


def changed(part: str, function: Callable[[Array], Array]) -> Callable[[Parts], object]:
    return lambda parts: parts.update({part: function(parts[part])})


SPOILT: list[tuple[str, Callable[[Parts], object], str]] = [
    ("gptq", without("scales"), "scales: expected floats, found nothing"),
    ("gptq", without("qzeros"), "qzeros: expected I32, found nothing"),
    ("gptq", changed("qzeros", lambda a: a[:, 1:]), r"qzeros: expected shape \[2, 4\], found"),
    ("gptq", changed("g_idx", lambda a: a + 1), "g_idx: a group beyond the 2 that there are"),
    ("gptq", changed("g_idx", lambda a: a - 1), "g_idx: a group beyond the 2 that there are"),
    ("gptq", changed("scales", lambda a: a * np.float16(np.inf)), "a scale that is not finite"),
    ("gptq", changed("scales", lambda a: np.vstack([a, a[:1]])), "64 columns in 3 groups"),
    ("awq", changed("qweight", lambda a: a.view(np.int8)), "qweight: expected I32, found I8"),
    ("awq", changed("qweight", lambda a: a[:, :1]), r"scales: expected shape \['any', 8\]"),
    ("compressed", changed("weight_shape", lambda a: a * 2), "weight_packed: expected shape"),
    ("compressed", changed("weight_packed", lambda a: a[:, :3]), "weight_packed of 3 words for"),
    (
        "fp8",
        changed("weight_scale_inv", lambda a: a[:1]),
        r"weight_scale_inv of shape \[1, 4\] for",
    ),
    ("fp8", without("weight_scale_inv"), "weight_scale: expected floats, found nothing"),
    ("bitnet", without("weight_scale"), "weight_scale: expected floats, found nothing"),
    ("bitnet", changed("weight_scale", lambda a: -a), "weight_scale: expected one positive number"),
    ("bitnet", changed("weight", lambda a: a.view("i1")), "weight: expected U8, found I8"),
]


@pytest.mark.parametrize(("name", "spoil", "expected"), SPOILT)
def test_damaged_parts(
    name: str, spoil: Callable[[Parts], object], expected: str, tmp_path: Path
) -> None:
    write(tmp_path / "m", name, spoil)
    with pytest.raises(HalfbyteError, match=expected) as error:
        open_model(tmp_path / "m")
    assert str(tmp_path / "m") in str(error.value)
