"""Samples of inputs, and the ranges derived from a model's values on them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto
from tests.quantize.small_models import Array, convolutions, node, normal, products, write

from halfbyte.errors import HalfbyteError
from halfbyte.quantize.onnx.calibrate import Calibration
from halfbyte.quantize.onnx.editor import Editor
from halfbyte.quantize.onnx.picture_samples import Normalization, read_picture, resized
from halfbyte.quantize.onnx.ranges import BINS, METHODS, Histogram
from halfbyte.quantize.onnx.samples import Inputs
from halfbyte.quantize.onnx.source import read_source

F, I64 = TensorProto.FLOAT, TensorProto.INT64
FLOAT32 = np.dtype(np.float32)


def inputs(path: Path) -> Inputs:
    return Inputs(Editor(read_source(path)))


# ---- ranges --------------------------------------------------------------------------------------


def test_a_histogram_does_not_depend_on_the_order() -> None:
    parts = [normal(500, seed=i) * 10.0 ** (i - 3) for i in range(6)]
    histograms = []
    for order in (parts, parts[::-1]):
        histogram = Histogram()
        for part in order:
            histogram.add(part)
        histograms.append(histogram)
    first, second = histograms
    np.testing.assert_array_equal(first.counts, second.counts)
    assert first.top == second.top
    assert first.counts.sum() == 3000
    whole = np.concatenate(parts)
    assert first.minmax() == (whole.min(), whole.max())
    edges = np.linspace(-first.top, first.top, 2 * BINS + 1)
    np.testing.assert_array_equal(first.counts, np.histogram(whole.astype(np.float64), edges)[0])


def test_values_that_do_not_count() -> None:
    for values in ([], [0.0, 0.0], [np.nan, np.inf]):
        histogram = Histogram()
        histogram.add(np.array(values, np.float32))
        assert all(method(histogram) == (0, 0) for method in METHODS.values())


def test_percentile_leaves_out_the_outermost() -> None:
    x = normal(1_000_000)
    x[:20] = 100
    histogram = Histogram()
    histogram.add(x)
    low, high = histogram.percentile()
    step = histogram.top / BINS
    want = np.percentile(x, [0.005, 99.995])
    assert [low, high] == pytest.approx(list(want), abs=1.01 * step)
    halved = Histogram()
    halved.add(np.maximum(normal(1_000_000), 0))
    assert halved.percentile()[0] == 0


@pytest.mark.parametrize(
    ("shape", "limits"),
    [
        (lambda x: x, (3.5, 5.2)),  # a normal distribution's tails are cut where few values are
        (lambda x: np.maximum(x, 0), (3.0, 5.2)),  # the many zeros have no say
        (lambda x: np.clip(2 * x, 0, 6), (6.0, 6.0)),
        (lambda x: np.where(np.arange(x.size) < 5, 1000, x), (3.5, 30)),  # nor have outliers
    ],
)
def test_entropy_cuts_tails(shape: Callable[[Array], Array], limits: tuple[float, float]) -> None:
    histogram = Histogram()
    histogram.add(shape(normal(1_000_000)))
    low, high = histogram.entropy()
    assert limits[0] <= high <= limits[1]
    assert low == 0 or -1.25 * limits[1] <= low <= -limits[0]


def test_ranges_are_those_of_the_values(tmp_path: Path) -> None:
    path = convolutions(tmp_path / "m.onnx")
    editor = Editor(read_source(path))
    samples = [{"x": normal(1, 3, 12, 12, seed=i)} for i in range(3)]
    limits = Calibration(samples).ranges(editor, ["x", "c"])
    every = np.stack([s["x"] for s in samples])
    assert limits["x"] == (every.min(), every.max())
    assert limits["c"][0] == 0
    assert limits["c"][1] <= 6


# ---- samples -------------------------------------------------------------------------------------


def both(path: Path) -> Path:
    """A model of two inputs."""
    nodes = [node("Gather", ["t", "i"], ["a"]), node("MatMul", ["a", "w"], ["b"]),
             node("Add", ["b", "x"], ["y"])]  # fmt: skip
    return write(
        path, nodes, {"x": (F, ["n", 4, 32]), "i": (I64, ["n", 4])}, {"y": (F, ["n", 4, 32])},
        {"t": normal(50, 64), "w": normal(64, 32)},
    )  # fmt: skip


def test_samples_of_one_file(tmp_path: Path) -> None:
    model = inputs(both(tmp_path / "m.onnx"))
    x, i = normal(5, 4, 32), np.arange(20).reshape(5, 4) % 50
    file = tmp_path / "s.npz"
    for arrays in (
        {"x": x, "i": i},
        {"x": x[:, None], "i": i.astype(np.int32)},
        {**{f"x.{n}": x[n] for n in range(5)}, **{f"i.{n}": i[n : n + 1] for n in range(5)}},
    ):
        np.savez(file, **arrays)  # type: ignore[arg-type]
        samples = model.read(file, Normalization())
        assert len(samples) == 5
        for n, feeds in enumerate(samples):
            np.testing.assert_array_equal(feeds["x"], x[n : n + 1])
            np.testing.assert_array_equal(feeds["i"], i[n : n + 1])
            assert feeds["i"].dtype == np.int64
    np.savez(file, x, i)
    assert len(model.read(file, Normalization())) == 5


def test_samples_of_a_folder(tmp_path: Path) -> None:
    model = inputs(both(tmp_path / "m.onnx"))
    folder = tmp_path / "samples"
    folder.mkdir()
    (folder / "notes.txt").write_text("not a sample")
    np.savez(folder / "b.npz", x=normal(2, 4, 32), i=np.zeros((2, 4), int))
    np.savez(folder / "a.npz", x=normal(3, 4, 32), i=np.zeros((3, 4), int))
    assert [len(f["x"]) for f in model.read(folder, Normalization())] == [3, 2]
    single = inputs(products(tmp_path / "p.onnx"))
    np.save(folder / "c.npy", np.arange(6).reshape(2, 3))
    for name in ("a.npz", "b.npz"):
        (folder / name).unlink()
    (samples,) = single.read(folder, Normalization())
    np.testing.assert_array_equal(samples["ids"], [[0, 1, 2], [3, 4, 5]])


def test_samples_that_do_not_fit(tmp_path: Path) -> None:
    model = inputs(both(tmp_path / "m.onnx"))
    file, folder = tmp_path / "s.npz", tmp_path / "folder"
    folder.mkdir()
    x, i = normal(5, 4, 32), np.zeros((5, 4), int)
    for arrays, message in (
        ({"x": x}, "input 'i': expected an array of this name"),
        ({"x": x, "i": i[:4]}, "as many samples of each input"),
        ({"x": x[:, :, :31], "i": i}, r"input 'x': expected float32 \['n', 4, 32\], found float32"),
        ({"x": x, "i": i + 0.5}, "input 'i': expected int64"),
        ({"x": x[0, 0], "i": i}, "input 'x': expected float32"),
        ({"x": np.array([{}] * 5), "i": i}, "cannot be read"),
    ):
        np.savez(file, **arrays)  # type: ignore[arg-type]
        with pytest.raises(HalfbyteError, match=message):
            model.read(file, Normalization())
    file.write_bytes(b"no zip")
    for path, message in (
        (file, "cannot be read"),
        (tmp_path / "none.npz", "cannot be read"),
        (tmp_path / "m.onnx", "a text is for encoders"),
        (tmp_path / "gone.txt", "expected calibration data: a text, a .npz file or a folder"),
        (folder, "found no samples"),
    ):
        with pytest.raises(HalfbyteError, match=message):
            model.read(path, Normalization())
    np.save(folder / "a.npy", x)
    with pytest.raises(HalfbyteError, match=r"one array for inputs \['x', 'i'\]"):
        model.read(folder, Normalization())


def test_random_inputs_are_within_tables(tmp_path: Path) -> None:
    model = inputs(both(tmp_path / "m.onnx"))
    feeds, again, other = model.random(), model.random(), model.random(1)
    assert feeds["x"].shape == (2, 4, 32)
    assert feeds["i"].min() >= 0
    assert 25 < feeds["i"].max() < 50
    for name, value in feeds.items():
        np.testing.assert_array_equal(value, again[name])
        assert (value != other[name]).any()


def correlation(x: Array, y: Array) -> float:
    return float(np.corrcoef(x.reshape(-1), y.reshape(-1))[0, 1])


def test_made_up_pictures_and_sounds_change_slowly(tmp_path: Path) -> None:
    """Unlike normal numbers, which other inputs get."""
    kinds: dict[str, tuple[int, list[int | str]]] = {
        "picture": (TensorProto.FLOAT, [2, 3, "h", "w"]),
        "sound": (TensorProto.FLOAT, [1, 1, 4000]),
        "numbers": (TensorProto.FLOAT, [4, 64, 30]),
    }
    nodes = [node("Identity", [name], [f"{name}2"]) for name in kinds]
    outputs = {f"{name}2": kind for name, kind in kinds.items()}
    path = write(tmp_path / "m.onnx", nodes, kinds, outputs, {})
    feeds = Inputs(Editor(read_source(path))).random()
    picture, sound, numbers = (feeds[name] for name in kinds)
    assert (picture.shape, picture.dtype) == ((2, 3, 64, 64), np.float32)
    assert correlation(picture[..., 1:], picture[..., :-1]) > 0.7
    np.testing.assert_allclose(picture.std(axis=(1, 2, 3)), 1, atol=0.01)
    assert correlation(sound[..., 1:], sound[..., :-1]) > 0.3
    assert np.abs(sound).max() <= 1
    assert 0.05 < sound.std() < 0.11
    assert abs(correlation(numbers[..., 1:], numbers[..., :-1])) < 0.1


@pytest.mark.parametrize("sides", [(0, 512), (0, 3, 8, 8), (2, 0, 512), (1, 3, 0, 8)])
def test_made_up_inputs_of_nothing(tmp_path: Path, sides: tuple[int, ...]) -> None:
    path = write(tmp_path / "m.onnx", [node("Identity", ["x"], ["y"])], {"x": (F, sides)},
                 {"y": (F, sides)}, {})  # fmt: skip
    assert inputs(path).random()["x"].shape == sides


def test_a_mask_in_floats_is_not_a_sound(tmp_path: Path) -> None:
    """It shares the size of the tokens, which are fewer than the positions of most models."""
    nodes = [node("Identity", ["mask"], ["m"]), node("Identity", ["ids"], ["i"])]
    both: dict[str, tuple[int, list[int | str]]] = {
        "mask": (F, ["n", "t"]),
        "ids": (I64, ["n", "t"]),
    }
    path = write(tmp_path / "m.onnx", nodes, both, {"m": both["mask"], "i": both["ids"]}, {})
    assert inputs(path).random()["ids"].shape == (2, 16)
    alone = write(tmp_path / "s.onnx", nodes[:1], {"mask": both["mask"]}, {"m": both["mask"]}, {})
    assert inputs(alone).random()["mask"].shape == (2, 1024)


def test_sizes_of_random_inputs_agree(tmp_path: Path) -> None:
    """The same name means the same size, and a sum of names the sum of sizes."""
    nodes = [node("Concat", ["a", "b"], ["c"], axis=1), node("MatMul", ["c", "w"], ["d"]),
             node("Mul", ["d", "m"], ["y"])]  # fmt: skip
    model = inputs(write(
        tmp_path / "m.onnx", nodes,
        {"m": (F, ["n", "past + new", 1]), "a": (F, ["n", "past", 64]), "b": (F, ["n", "new", 64])},
        {"y": (F, ["n", "all", 8])}, {"w": normal(64, 8)},
    ))  # fmt: skip
    feeds = model.random()
    assert feeds["m"].shape[1] == feeds["a"].shape[1] + feeds["b"].shape[1]


# ---- pictures ------------------------------------------------------------------------------------


def bmp(pixels: npt.NDArray[np.uint8], bits: int = 24, *, upwards: bool = True) -> bytes:
    """A BMP of BGR rows, each padded to four bytes."""
    height, width, _ = pixels.shape
    rows = pixels[::-1] if upwards else pixels
    palette = b""
    if bits == 8:
        palette = b"".join(bytes([i, 255 - i, 7, 0]) for i in range(256))
        body = [row[:, 0].tobytes() for row in rows]
    elif bits == 32:
        body = [np.dstack([row[None, :, ::-1], row[None, :, :1]]).tobytes() for row in rows]
    else:
        body = [row[:, ::-1].tobytes() for row in rows]
    body = [line + bytes(-len(line) % 4) for line in body]
    offset = 54 + len(palette)
    head = struct.pack("<2sIHHI", b"BM", offset + sum(map(len, body)), 0, 0, offset)
    signed = height if upwards else -height
    head += struct.pack("<IiiHHIIiiII", 40, width, signed, 1, bits, 0, 0, 0, 0, 0, 0)
    return head + palette + b"".join(body)


PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)


def test_formats_of_pictures(tmp_path: Path) -> None:
    """The same pixels in all ways of storing them."""
    grey = PIXELS[..., :1]
    files = {
        "a.bmp": bmp(PIXELS), "b.bmp": bmp(PIXELS, 32), "c.bmp": bmp(PIXELS, upwards=False),
        "d.ppm": b"P6\n# a comment\n7 5\n255\n" + PIXELS.tobytes(),
    }  # fmt: skip
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        picture = read_picture(tmp_path / name, [1, 3, 0, 0], np.dtype(np.uint8), Normalization())
        np.testing.assert_array_equal(picture[0].transpose(1, 2, 0), PIXELS, err_msg=name)
    (tmp_path / "e.pgm").write_bytes(b"P5 7 5 255 " + grey.tobytes())
    picture = read_picture(tmp_path / "e.pgm", [1, 5, 7, 3], np.dtype(np.uint8), Normalization())
    np.testing.assert_array_equal(picture[0], np.repeat(grey, 3, axis=2))
    (tmp_path / "f.bmp").write_bytes(bmp(PIXELS, 8))
    picture = read_picture(tmp_path / "f.bmp", [1, 3, 0, 0], np.dtype(np.uint8), Normalization())
    np.testing.assert_array_equal(picture[0, 2], PIXELS[..., 0])
    np.testing.assert_array_equal(picture[0, 1], 255 - PIXELS[..., 0])
    assert (picture[0, 0] == 7).all()


def test_pictures_are_scaled_and_normalized(tmp_path: Path) -> None:
    (tmp_path / "a.bmp").write_bytes(bmp(PIXELS))
    normalization = Normalization((0.5, 0.25, 0.0), (0.5, 1.0, 2.0))
    picture = read_picture(tmp_path / "a.bmp", [1, 3, 5, 7], FLOAT32, normalization)
    want = (PIXELS / 255 - np.array(normalization.mean)) / np.array(normalization.std)
    np.testing.assert_allclose(picture[0].transpose(1, 2, 0), want, atol=1e-6)
    flat = np.full((40, 60, 3), 9.0, np.float32)
    for size in ((10, 15), (80, 13), (1, 1)):
        np.testing.assert_allclose(resized(flat, *size), 9, rtol=1e-6)
    ramp = np.broadcast_to(np.arange(64, dtype=np.float32)[None, :, None], (8, 64, 1))
    np.testing.assert_allclose(
        resized(ramp, 8, 16)[0, 2:-2, 0], np.arange(2, 14) * 4 + 1.5, rtol=1e-6
    )
    np.testing.assert_array_equal(resized(ramp, 8, 64), ramp)


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    model = inputs(convolutions(tmp_path / "m.onnx"))
    (tmp_path / "p").mkdir()
    for index in range(3):
        (tmp_path / "p" / f"{index}.bmp").write_bytes(bmp(PIXELS))
    samples = model.read(tmp_path / "p", Normalization())
    assert [f["x"].shape for f in samples] == [(1, 3, 12, 12)] * 3
    mean = PIXELS.mean(axis=(0, 1)) / 255
    want = (mean - Normalization().mean) / np.array(Normalization().std)
    np.testing.assert_allclose(samples[0]["x"].mean(axis=(0, 2, 3)), want, atol=0.35)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.bmp", b"BM", "not a picture"),
        ("a.bmp", bmp(PIXELS)[:100], "not a picture"),
        (
            "a.bmp",
            bmp(PIXELS).replace(struct.pack("<HI", 24, 0), struct.pack("<HI", 4, 1)),
            "4 bits",
        ),
        ("a.ppm", b"P6 7 5 255 " + b"x" * 9, "not a picture"),
        ("a.ppm", b"P3 7 5 255 1 2 3", "expected P5 or P6"),
        ("a.ppm", b"P6 7", "cut off"),
        ("a.ppm", b"P6 100000 100000 255 ", "100000 x 100000 pixels"),
        ("a.ppm", b"P6 -7 5 255 ", "-7 x 5 pixels"),
        ("a.png", b"\x89PNG", "needs `pip install Pillow`|not a picture"),
    ],
)
def test_pictures_that_cannot_be_read(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(HalfbyteError, match=message):
        read_picture(tmp_path / name, [1, 3, 4, 4], FLOAT32, Normalization())


@pytest.mark.parametrize("numbers", [(0.5, 0.5), (), (np.nan,) * 3, (0.0, 1.0, 1.0)])
def test_invalid_normalizations(numbers: tuple[float, ...]) -> None:
    with pytest.raises(HalfbyteError, match="expected"):
        Normalization(std=numbers)


def test_inputs_that_take_no_pictures(tmp_path: Path) -> None:
    (tmp_path / "a.bmp").write_bytes(bmp(PIXELS))
    for shape in ([1, 4, 8, 8], [3, 8, 8], [2, 3, 8, 8]):
        with pytest.raises(HalfbyteError, match="expected an input"):
            read_picture(tmp_path / "a.bmp", shape, FLOAT32, Normalization())
