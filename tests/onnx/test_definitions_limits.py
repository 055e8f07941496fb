"""Neural-network operators at their limits: absurd sizes, wrong indices, damaged images, chance."""

from __future__ import annotations

import re
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from halfbyte.core.backends import open_program
from halfbyte.errors import HalfbyteError, ProgramError, UnsupportedError
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.files.model import Graph, Model, Node, ValueInfo
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner

Array = npt.NDArray[Any]
HUGE = 1 << 40


def run(operator: str, opset: int, *inputs: Any, outputs: int = 1, **attributes: Any) -> list[Any]:
    """The outputs of one node."""
    given = {f"x{i}": np.asarray(v) for i, v in enumerate(inputs) if v is not None}
    names = tuple(f"x{i}" if v is not None else "" for i, v in enumerate(inputs))
    results = tuple(f"y{i}" for i in range(outputs))
    node = Node(operator, names, results, attributes)
    graph = Graph("", [node], {}, [ValueInfo(n) for n in given], [ValueInfo(n) for n in results])
    model = Model("case.onnx", graph, {"": opset})  # type: ignore[arg-type]
    return list(Evaluator(model).run(given).values())


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


IMAGE = ones(1, 1, 4, 4)
REFUSED: dict[str, Callable[[], Any]] = {
    "scales": lambda: run("Resize", 13, IMAGE, None, ones(4) * 1e6),
    "infinite": lambda: run("Resize", 13, IMAGE, None, ones(4) * np.inf),
    "sizes": lambda: run("Resize", 13, IMAGE, None, None, i64(1, 1, HUGE, HUGE)),
    "negative": lambda: run("Resize", 13, IMAGE, None, None, i64(1, 1, -4, 4)),
    "upsample": lambda: run("Upsample", 9, IMAGE, ones(4) * 1e6),
    "both": lambda: run("Resize", 13, IMAGE, None, ones(4), i64(1, 1, 2, 2)),
    "strides": lambda: run("ConvTranspose", 11, IMAGE, IMAGE, strides=[HUGE, HUGE]),
    "output_shape": lambda: run("ConvTranspose", 11, IMAGE, IMAGE, output_shape=[HUGE, HUGE]),
    "cropped": lambda: run("ConvTranspose", 11, IMAGE, IMAGE, pads=[9, 9, 9, 9]),
    "pads": lambda: run("Conv", 11, IMAGE, IMAGE, pads=[HUGE, 0, 0, HUGE]),
    "no stride": lambda: run("Conv", 11, IMAGE, IMAGE, strides=[0, 1]),
    "groups": lambda: run("Conv", 11, ones(1, 3, 4, 4), ones(4, 1, 2, 2), group=2),
    "kernel": lambda: run("MaxPool", 11, IMAGE, kernel_shape=[5, 5]),
    "dilations": lambda: run("AveragePool", 19, IMAGE, kernel_shape=[2, 2], dilations=[HUGE, 1]),
    "image": lambda: run("Col2Im", 18, ones(1, 4, 9), i64(HUGE, HUGE), i64(2, 2)),
    "blocks": lambda: run("Col2Im", 18, ones(1, 4, 8), i64(4, 4), i64(2, 2)),
    "unpooled": lambda: run("MaxUnpool", 11, IMAGE, i64(*[99] * 16).reshape(1, 1, 4, 4),
                            kernel_shape=[1, 1]),
    "normal": lambda: run("RandomNormal", 7, shape=[HUGE, HUGE]),
    "samples": lambda: run("Multinomial", 7, ones(2, 3), sample_size=HUGE),
    "window": lambda: run("HannWindow", 17, i64(HUGE)),
    "mel": lambda: run("MelWeightMatrix", 17, *(np.int64(n) for n in (HUGE, HUGE, 9)),
                       np.float32(0), np.float32(4)),
    "dft": lambda: run("DFT", 20, ones(1, 4, 1), np.int64(HUGE)),
    "stft": lambda: run("STFT", 17, ones(1, 4, 1), np.int64(0), ones(2)),
    "grid": lambda: run("AffineGrid", 20, ones(1, 2, 3), i64(1, 1, HUGE, HUGE)),
    "region": lambda: run("RoiAlign", 16, IMAGE, ones(1, 4) * np.nan, i64(0)),
    "batch": lambda: run("RoiAlign", 16, IMAGE, ones(1, 4), i64(-1)),
    "ratio": lambda: run("RoiAlign", 16, IMAGE, ones(1, 4), i64(0), sampling_ratio=HUGE),
    "position": lambda: run("RotaryEmbedding", 23, ones(1, 1, 1, 4), ones(3, 2), ones(3, 2),
                            i64(-1).reshape(1, 1)),
    "class": lambda: run("NegativeLogLikelihoodLoss", 13, ones(2, 3), i64(0, -1)),
    "cropped edge": lambda: run("Pad", 13, ones(5, 2), i64(3, 0, -7, 0), mode="edge"),
    "cropped twice": lambda: run("Pad", 13, ones(5, 2), i64(-3, 0, -3, 0)),
    "scale": lambda: run("QuantizeLinear", 13, ones(2, 3), ones(2), axis=1),
    "block": lambda: run("DequantizeLinear", 21, ones(2, 6).astype(np.int8), ones(2, 2),
                         block_size=-3),
    "activation": lambda: run("RNN", 14, ones(1, 1, 1), ones(1, 1, 1), ones(1, 1, 1),
                              activations=["Cosine"]),
    "weights": lambda: run("LSTM", 14, ones(1, 1, 2), ones(1, 4, 1), ones(1, 4, 1)),
    "heads": lambda: run("Attention", 23, ones(1, 3, 2, 4), ones(1, 2, 2, 4), ones(1, 2, 2, 4)),
}  # fmt: skip


@pytest.mark.parametrize("label", REFUSED)
def test_refused(label: str) -> None:
    with pytest.raises(HalfbyteError, match=r"case\.onnx: node of"):
        REFUSED[label]()


# ---- types --------------------------------------------------------------------------------------


def test_float16_sums_are_float32() -> None:
    x, w = np.full((1, 1, 64, 64), 1, np.float16), np.full((1, 1, 64, 64), 0.25, np.float16)
    (y,) = run("Conv", 17, x, w)
    assert y.dtype == np.float16
    assert float(y[0, 0, 0, 0]) == 1024  # float16 sums would stop at 512
    (mean,) = run("AveragePool", 17, np.full((1, 1, 4096), 3, np.float16), kernel_shape=[4096])
    assert float(mean[0, 0, 0]) == 3


def test_bfloat16() -> None:
    x = dtypes.narrow(np.arange(12, dtype=np.float32).reshape(3, 4), dtypes.BFLOAT16)
    scale = dtypes.narrow(ones(4), dtypes.BFLOAT16)
    y, mean, _ = run("LayerNormalization", 17, x, scale, outputs=3)
    assert (y.dtype, mean.dtype) == (dtypes.BFLOAT16, np.float32)
    np.testing.assert_array_equal(mean.reshape(-1), [1.5, 5.5, 9.5])
    np.testing.assert_allclose(dtypes.widen(y)[0], [-1.34, -0.447, 0.447, 1.34], rtol=0.01)


def test_quantized_types() -> None:
    x = np.array([-9, -3, -0.6, 0.4, 1.5, 20], np.float32)
    limits = {
        dtypes.INT4: (-8, 7),
        dtypes.UINT4: (0, 15),
        dtypes.INT2: (-2, 1),
        dtypes.UINT2: (0, 3),
    }
    for dtype, (low, high) in limits.items():
        (y,) = run("QuantizeLinear", 25, x, np.float32(1), output_dtype=dtypes.NUMBERS[dtype])
        assert y.dtype == dtype
        np.testing.assert_array_equal(dtypes.widen(y), np.clip(np.rint(x), low, high))
        (back,) = run("DequantizeLinear", 25, y, np.float32(0.5))
        np.testing.assert_array_equal(back, np.clip(np.rint(x), low, high) / 2)


# ---- chance -------------------------------------------------------------------------------------


def test_seeds() -> None:
    for operator in ("RandomNormal", "RandomUniform"):
        first, again = (run(operator, 7, shape=[50], seed=3.5)[0] for _ in range(2))
        np.testing.assert_array_equal(first, again)
        assert (first != run(operator, 7, shape=[50], seed=3.0)[0]).any()
        assert (run(operator, 7, shape=[50])[0] != run(operator, 7, shape=[50])[0]).any()


def test_distributions() -> None:
    (normal,) = run("RandomNormal", 7, shape=[200, 200], mean=3.0, scale=2.0, seed=1.0, dtype=11)
    assert normal.dtype == np.float64
    assert abs(normal.mean() - 3) < 0.05
    assert abs(normal.std() - 2) < 0.05
    (even,) = run("RandomUniformLike", 7, ones(200, 200), low=-2.0, high=4.0, seed=1.0)
    assert even.dtype == np.float32
    assert -2 <= even.min() < -1.9
    assert 3.9 < even.max() <= 4
    (coins,) = run("Bernoulli", 15, np.full(20000, 0.3), dtype=6, seed=2.0)
    assert coins.dtype == np.int32
    assert abs(coins.mean() - 0.3) < 0.02
    assert set(coins.tolist()) == {0, 1}
    logs = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.01, 0.49]], np.float64))
    (drawn,) = run("Multinomial", 7, logs, sample_size=20000, dtype=7, seed=2.0)
    assert drawn.dtype == np.int64
    shares = [np.bincount(row, minlength=3) / 20000 for row in drawn]
    np.testing.assert_allclose(shares, np.exp(logs), atol=0.02)


def test_dropout_in_training() -> None:
    y, mask = run("Dropout", 13, ones(100, 100), np.float32(0.25), np.True_, outputs=2, seed=4)
    np.testing.assert_array_equal(y, np.where(mask, np.float32(1 / 0.75), 0))
    assert abs(mask.mean() - 0.75) < 0.02


# ---- images -------------------------------------------------------------------------------------

PIXELS = np.random.default_rng(0).integers(0, 256, (7, 5, 3)).astype(np.uint8)


def png(pixels: Array, colour: int = 2, extra: bytes = b"") -> bytes:
    """A PNG whose rows have the filters 0 to 4 in turn; `extra` is a palette."""
    height, width, step = pixels.shape
    above = np.zeros(width * step, np.int64)
    rows = b""
    for number, row in enumerate(pixels.reshape(height, -1).astype(np.int64)):
        left = np.concatenate([np.zeros(step, np.int64), row[:-step]])
        corner = np.concatenate([np.zeros(step, np.int64), above[:-step]])
        near = np.abs(np.stack([above - corner, left - corner, left + above - 2 * corner]))
        paeth = np.choose(near.argmin(axis=0), [left, above, corner])
        guess = [0 * row, left, above, (left + above) // 2, paeth][number % 5]
        rows += bytes([number % 5]) + ((row - guess) % 256).astype(np.uint8).tobytes()
        above = row
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"PLTE", extra), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + b"\0\0\0\0" for name, body in chunks
    )


def bmp(pixels: Array, bits: int = 24, height_sign: int = 1, palette: bytes = b"") -> bytes:
    height, width = pixels.shape[:2]
    rows = pixels[::-height_sign].reshape(height, -1)
    rows = np.pad(rows, [(0, 0), (0, -rows.shape[1] % 4)])
    start = 54 + len(palette)
    return (
        struct.pack("<2sIII", b"BM", start + rows.size, 0, start)
        + struct.pack("<IiiHHIIiiII", 40, width, height * height_sign, 1, bits, 0, 0, 0, 0,
                      len(palette) // 4, 0)
        + palette + rows.tobytes()
    )  # fmt: skip


def decoded(data: bytes, pixel_format: str = "RGB") -> Array:
    image = run("ImageDecoder", 20, np.frombuffer(data, np.uint8), pixel_format=pixel_format)[0]
    assert isinstance(image, np.ndarray)
    return image


def test_images() -> None:
    grey = PIXELS[..., :1]
    indices, table = (
        np.arange(35, dtype=np.uint8).reshape(7, 5, 1) % 6,
        PIXELS[:2, :3].reshape(6, 3),
    )
    quads = np.concatenate([table[:, ::-1], np.zeros((6, 1), np.uint8)], axis=1).tobytes()
    words = b" ".join(b"%d" % value for value in PIXELS.reshape(-1))
    images: dict[bytes, Array] = {
        png(PIXELS): PIXELS,
        png(np.concatenate([PIXELS, grey], axis=2), 6): PIXELS,
        png(grey, 0): np.repeat(grey, 3, axis=2),
        png(indices, 3, table.tobytes()): table[indices[..., 0]],
        bmp(PIXELS[..., ::-1]): PIXELS,
        bmp(PIXELS[..., ::-1], height_sign=-1): PIXELS,
        bmp(indices, 8, palette=quads): table[indices[..., 0]],
        b"P6 # a comment\n5 7\n255\n" + PIXELS.tobytes(): PIXELS,
        b"P5 5 7 255\n" + grey.tobytes(): np.repeat(grey, 3, axis=2),
        b"P3\n5 7\n255\n" + words: PIXELS,
    }
    for data, expected in images.items():
        np.testing.assert_array_equal(decoded(data), expected)
        np.testing.assert_array_equal(decoded(data, "BGR"), expected[..., ::-1])
        shades = decoded(data, "Grayscale")[..., 0].astype(float)
        np.testing.assert_allclose(shades, expected @ [0.299, 0.587, 0.114], atol=0.6)


@pytest.mark.parametrize("data", [png(PIXELS), bmp(PIXELS), b"P6 5 7 255\n" + PIXELS.tobytes()])
def test_damaged_images_are_empty(data: bytes) -> None:
    for end in (len(data) - 40, 30, 12):
        assert decoded(data[:end]).shape == (0, 0, 3)
    assert decoded(b"no image").shape == (0, 0, 3)


def test_unpacking_ends_where_the_image_does() -> None:
    bomb = png(np.zeros((10, 200_000, 1), np.uint8), 0)
    tracemalloc.start()
    assert decoded(bomb[:16] + struct.pack(">II", 3, 2) + bomb[24:]).shape == (2, 3, 3)
    assert tracemalloc.get_traced_memory()[1] < 500_000  # of 2,000,000 unpacked
    tracemalloc.stop()
    with pytest.raises(HalfbyteError, match="GB: expected at most"):
        decoded(bomb[:16] + struct.pack(">II", 1 << 31, 1 << 31) + bomb[24:])


def test_unknown_formats_are_named() -> None:
    with pytest.raises(UnsupportedError, match="JPEG"):
        decoded(b"\xff\xd8\xff\xe0....")


ATTRIBUTES: dict[str, tuple[str, dict[str, Any], str]] = {
    "float for int": ("Softmax", {"axis": 1.0}, "attribute 'axis': float, expected int"),
    "text for int": ("Flatten", {"axis": "1"}, "attribute 'axis': str, expected int"),
    "int for ints": ("Transpose", {"perm": 0}, "attribute 'perm': int, expected a list of int"),
    "floats for ints": (
        "Transpose", {"perm": [1.0, 0.0]}, "attribute 'perm': a list of float, expected a list of",
    ),
    "float that reads as true": ("ReduceSum", {"keepdims": 0.5}, "'keepdims': float, expected int"),
    "list for float": ("LeakyRelu", {"alpha": [0.5]}, "'alpha': a list of float, expected float"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_of_another_type_are_refused(name: str) -> None:
    """Where the model is evaluated and where it is lowered."""
    operator, attributes, message = ATTRIBUTES[name]
    with pytest.raises(ProgramError, match=re.escape(message)):
        run(operator, 13, ones(2, 3), **attributes)
    graph = Graph(
        "", [Node(operator, ("x",), ("y",), attributes)], {}, [ValueInfo("x")], [ValueInfo("y")]
    )
    model = Model(Path("case.onnx"), graph, {"": 13})
    with pytest.raises(ProgramError, match=re.escape(message)):
        Runner(prepare(model), open_program).run({"x": ones(2, 3)}, ["y"])


def test_whole_numbers_are_taken_for_floats() -> None:
    """Some versions of an operator have an INT where others have a FLOAT."""
    assert run("LeakyRelu", 6, -ones(2), alpha=2)[0].tolist() == [-2, -2]
