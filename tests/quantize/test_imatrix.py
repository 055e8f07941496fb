"""llama.cpp's files of importance, of both kinds, also damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from tests.text.architectures import models

from halfbyte.cli import quantize as main
from halfbyte.errors import FormatError, OutputError
from halfbyte.formats import ModelFile
from halfbyte.quantize import quantize_file
from halfbyte.quantize.calibration.imatrix import read_imatrix, write_imatrix
from halfbyte.quantize.calibration.statistics import Moments
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.opening import open_model
from halfbyte.weights import F32, Tensor

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


@pytest.mark.parametrize("replaced", ["model.gguf", "text.txt", "out.gguf", "report.json"])
def test_it_replaces_no_input_and_no_other_output(
    replaced: str, model: ModelFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor does the report; also with --force, and before any work."""
    (tmp_path / "text.txt").write_text("Once upon a time", "utf-8")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    common = [str(model.path), "--int4", "--force", "-o", str(tmp_path / "out.gguf")]
    common += ["--calibrate", str(tmp_path / "text.txt"), "--json", str(tmp_path / "report.json")]
    assert main([*common, "--write-imatrix", str(tmp_path / replaced)]) == 2
    assert f"{replaced}: is " in capsys.readouterr().err
    if replaced in before:
        assert main([*common, "--json", str(tmp_path / replaced)]) == 2
        assert f"{replaced}: is an input" in capsys.readouterr().err
        with pytest.raises(OutputError, match="is an input"):
            quantize_file(
                model.path, "int4", tmp_path / "out.gguf", calibrate=tmp_path / "text.txt",
                write_imatrix=tmp_path / replaced,
            )  # fmt: skip
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_it_replaces_only_files_of_importance(
    model: ModelFile, moments: dict[str, Moments], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "notes.gguf").write_text("notes", "utf-8")
    (tmp_path / "text.txt").write_text("Once upon a time", "utf-8")
    write_imatrix(tmp_path / "own.gguf", moments, 2, "t")
    quantize_file(model.path, "int8", tmp_path / "small.gguf", threads=1)
    common = [str(model.path), "--int4", "--calibrate", str(tmp_path / "text.txt")]
    errors = {}
    for name in ("notes.gguf", "small.gguf", "own.gguf"):
        options = ["-o", str(tmp_path / "o.gguf"), "--write-imatrix", str(tmp_path / name)]
        assert main([*common, *options]) == 2
        errors[name] = capsys.readouterr().err
    assert "halfbyte did not write it" in errors["notes.gguf"]
    assert "halfbyte did not write it" in errors["small.gguf"]
    assert "at least 256 tokens" in errors["own.gguf"]


@pytest.mark.parametrize("count", [np.nan, np.inf, -1])
def test_counts_that_are_none(count: float, model: ModelFile, tmp_path: Path) -> None:
    parts = {"in_sum2": np.ones((1, model.tensors[NAME].columns)), "counts": np.array([[count]])}
    write_gguf(
        tmp_path / "i.gguf", {},
        [Tensor(f"{NAME}.{part}", F32, x.shape, F32.encode(x.astype(np.float32)).reshape(-1))
         for part, x in parts.items()],
    )  # fmt: skip
    with pytest.raises(FormatError, match=rf"'{NAME}.in_sum2': expected counts of rows, found"):
        read_imatrix(tmp_path / "i.gguf", model)
