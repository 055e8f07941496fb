"""llama.cpp's files of importance, of both kinds, also damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from tests.text.architectures import models

from halfbyte.cli import quantize as main
from halfbyte.errors import FormatError
from halfbyte.formats import ModelFile
from halfbyte.quantize.calibration.imatrix import read_imatrix, write_imatrix
from halfbyte.quantize.calibration.statistics import Moments
from halfbyte.text.opening import open_model

NAME, STACK = "blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight"


@pytest.fixture
def model(tmp_path: Path) -> ModelFile:
    return open_model(models.write(tmp_path / "model.gguf", "mixtral"))


@pytest.fixture
def moments(model: ModelFile) -> dict[str, Moments]:
    generator = np.random.default_rng(0)
    made = {}
    for name, counts in ((NAME, [7]), (STACK, [3, 0, 2, 2])):
        squares = generator.random((len(counts), model.tensors[name].columns))
        squares *= np.array(counts)[:, None]
        made[name] = Moments(squares, np.array(counts))
    return made


@pytest.mark.parametrize("name", ["a.gguf", "a.dat"])
def test_round_trip(
    name: str, model: ModelFile, moments: dict[str, Moments], tmp_path: Path
) -> None:
    """Experts without tokens have weights of 1."""
    write_imatrix(tmp_path / name, moments, 2, "text.txt")
    means = read_imatrix(tmp_path / name, model)
    assert means.keys() == moments.keys()
    for tensor, found in moments.items():
        np.testing.assert_allclose(means[tensor], found.means(), rtol=1e-6)
    assert (means[STACK][1] == 1).all()


def test_the_file_of_today_as_gguf_reads_it(moments: dict[str, Moments], tmp_path: Path) -> None:
    """Names, shapes and metadata that llama.cpp looks for."""
    write_imatrix(tmp_path / "a.gguf", moments, 2, "text.txt")
    reader = gguf.GGUFReader(tmp_path / "a.gguf")
    assert reader.fields["general.type"].contents() == "imatrix"
    assert reader.fields["imatrix.datasets"].contents() == ["text.txt"]
    assert reader.fields["imatrix.chunk_count"].contents() == 2
    assert reader.fields["imatrix.chunk_size"].contents() == 3
    tensors = {t.name: t for t in reader.tensors}
    columns = moments[STACK].squares.shape[1]
    assert tensors[f"{STACK}.in_sum2"].shape.tolist() == [columns, 4]
    assert tensors[f"{STACK}.counts"].shape.tolist() == [1, 4]
    np.testing.assert_allclose(tensors[f"{STACK}.in_sum2"].data, moments[STACK].squares, rtol=1e-6)


def test_the_older_file_byte_by_byte(model: ModelFile, tmp_path: Path) -> None:
    """As llama.cpp wrote it: values are means times calls."""
    columns = model.tensors[NAME].columns
    values = np.arange(1, columns + 1, dtype="<f4")
    name, text = NAME.encode(), b"wiki.raw"
    data = struct.pack("<ii", 1, len(name)) + name + struct.pack("<ii", 4, columns)
    data += (4 * values).tobytes() + struct.pack("<ii", 4, len(text)) + text
    (tmp_path / "a.dat").write_bytes(data)
    np.testing.assert_array_equal(read_imatrix(tmp_path / "a.dat", model)[NAME], values[None])
    moments = {NAME: Moments(9.0 * values[None], np.array([9]))}
    write_imatrix(tmp_path / "b.dat", moments, 4, "wiki.raw")
    assert (tmp_path / "b.dat").read_bytes() == data


@pytest.mark.parametrize("name", ["a.gguf", "a.dat"])
def test_damaged_files(
    name: str, model: ModelFile, moments: dict[str, Moments], tmp_path: Path
) -> None:
    """Every truncation is refused, and counts that the file cannot hold are."""
    path = tmp_path / name
    write_imatrix(path, moments, 2, "t")
    data = path.read_bytes()
    for end in range(0, len(data) - 16, 37):
        path.write_bytes(data[:end])
        with pytest.raises(FormatError, match=name):
            read_imatrix(path, model)
    for number in (-1, 1 << 30):
        path.write_bytes(struct.pack("<i", number) + data[4:])
        with pytest.raises(FormatError, match=f"expected an imatrix.*found {number}"):
            read_imatrix(path, model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: {NAME: Moments(m.squares[:, :-1], m.counts)}, "it is another model's"),
        (lambda m: {NAME: Moments(m.squares * np.nan, m.counts)}, "finite squares, found nan"),
        (lambda m: {NAME: Moments(-m.squares, m.counts)}, "expected finite squares, found -"),
        (lambda m: {"other": m}, "found none"),
    ],
)  # fmt: skip
def test_files_of_another_model(
    change: object, message: str, model: ModelFile, moments: dict[str, Moments], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    write_imatrix(tmp_path / "i.gguf", change(moments[NAME]), 1, "t")  # type: ignore[operator]
    out = tmp_path / "out.gguf"
    options = ["--int4", "--imatrix", str(tmp_path / "i.gguf"), "-o", str(out)]
    assert main([str(model.path), *options]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_statistics_of_a_text_and_its_file_are_the_same(
    storyteller: Path, tmp_path: Path, repository: Path
) -> None:
    """To the byte, though channels are equalized in between."""
    text = tmp_path / "text.txt"
    held = (repository / "tests/data/storyteller-heldout.txt").read_text("utf-8")
    text.write_text(held[:2000], "utf-8")
    common = [str(storyteller), "--int4", "--method", "search", "-t", "1", "-o"]
    a, b, file = (tmp_path / name for name in ("a.gguf", "b.gguf", "i.gguf"))
    calibrated = ["--calibrate", str(text), "--write-imatrix", str(file)]
    assert main([*common, str(a), *calibrated]) == 0
    assert main([*common, str(b), "--imatrix", str(file)]) == 0
    assert a.read_bytes() == b.read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "gptq", "--imatrix", "i.gguf"], "expected method 'search' and no text"),
        (["--imatrix", "none.gguf"], "none.gguf: cannot be read"),
        (["--write-imatrix", "i.gguf"], "expected a text to calibrate with"),
    ],
)
def test_options(
    options: list[str], message: str, storyteller: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert main([str(storyteller), "--int4", "-o", str(tmp_path / "o.gguf"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
