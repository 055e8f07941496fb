"""ONNX models rounded by what enters their matrices, and texts as samples of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.quantize.small_models import Array, load, node, normal, run, tensors_of, write
from tests.text.tokenizers import hugging_face

from halfbyte.cli import quantize as main
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.session import InferenceSession
from halfbyte.quantize import compensation, quantize_onnx
from halfbyte.quantize.onnx import Options, calibrate
from halfbyte.quantize.onnx.editor import Editor
from halfbyte.quantize.onnx.picture_samples import Normalization
from halfbyte.quantize.onnx.samples import Feeds, Inputs
from halfbyte.quantize.onnx.source import read_source
from halfbyte.quantize.onnx.text_samples import LENGTH

F, I64 = TensorProto.FLOAT, TensorProto.INT64


def correlated(rows: int, columns: int, seed: int = 0) -> Array:
    """Rows of few hidden numbers, of channels that differ in size."""
    mixed = normal(rows, columns // 8, seed=seed) @ normal(columns // 8, columns, seed=90)
    sizes = np.exp(normal(columns, seed=91) / 2)
    x: Array = (mixed + normal(rows, columns, seed=seed + 1) / 4) * sizes
    return x


def products(path: Path, k: int, n: int = 48) -> Path:
    """A norm, a product of it, one of a part of its results, and a Gemm of the input."""
    nodes = [
        node("LayerNormalization", ["x", "gain", "shift"], ["normed"]),
        node("MatMul", ["normed", "a"], ["first"], name="first"),
        node("Relu", ["first"], ["active"]),
        node("MatMul", ["active", "b"], ["second"], name="second"),
        node("Gemm", ["x", "c"], ["third"], name="third", transB=1, alpha=0.5),
    ]
    tensors = {
        "gain": np.exp(normal(k, seed=1)), "shift": normal(k, seed=2), "a": normal(k, n, seed=3),
        "b": normal(n, 32, seed=4), "c": normal(n, k, seed=5),
    }  # fmt: skip
    outputs = {"first": (F, ["n", n]), "second": (F, ["n", 32]), "third": (F, ["n", n])}
    return write(path, nodes, {"x": (F, ["n", k])}, outputs, tensors)


def quantized(path: Path, samples: Path | None, **options: Any) -> Path:
    chosen = Options(**{"type": "int4", "pure": True, "compare": False, **options})
    output = path.with_name("o.onnx")
    quantize_onnx(path, output, chosen, samples=samples)
    return output


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """600 samples of 96 channels."""
    np.savez(tmp_path / "s.npz", x=correlated(600, 96))
    return tmp_path / "s.npz"


def losses(path: Path, output: Path, feeds: Feeds) -> list[float]:
    """Of each output, its squared error to that in floats."""
    pairs = zip(run(path, feeds), run(output, feeds), strict=True)
    return [float(np.square(x - y).sum()) for x, y in pairs]


@pytest.mark.parametrize(("k", "bound"), [(96, 0.6), (128, 0.6), (80, 0.6)])
def test_errors_are_made_up_for(tmp_path: Path, k: int, bound: float) -> None:
    """On other samples, in ONNX Runtime: smoothed after a norm, rotated, and padded to blocks."""
    path = products(tmp_path / "m.onnx", k)
    np.savez(tmp_path / "s.npz", x=correlated(600, k))
    feeds = {"x": correlated(100, k, seed=7)}
    before, after = (
        losses(path, quantized(path, tmp_path / "s.npz", rounding=rounding), feeds)
        for rounding in ("search", "auto")
    )
    assert after[0] < bound * before[0]
    assert after[2] < bound * before[2]
    ours = InferenceSession(str(tmp_path / "o.onnx")).run(None, feeds)
    for x, y in zip(ours, run(tmp_path / "o.onnx", feeds), strict=True):
        assert np.square(x - y).sum() < 0.02 * np.square(y).sum()


@pytest.mark.parametrize("k", [96, 128, 80])
def test_what_enters_a_quantized_product(
    tmp_path: Path, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding is given the Gram matrix of what the product reads: smoothed, rotated, padded."""
    given: list[Array] = []
    usual = compensation.factors

    def factors(gram: Array, rows: int) -> tuple[Array, Array]:
        given.append(gram.copy())
        return usual(gram, rows)

    monkeypatch.setattr(compensation, "factors", factors)
    x = correlated(600, k)
    np.savez(tmp_path / "s.npz", x=x)
    model = load(quantized(products(tmp_path / "m.onnx", k), tmp_path / "s.npz"))
    names = [n.input[0] for n in model.graph.node if n.op_type == "MatMulNBits"]
    assert ["rotated" in name for name in names] == [k == 128, False, k == 128]
    del model.graph.output[:]
    inner = [helper.make_tensor_value_info(name, F, [None, None]) for name in names if name != "x"]
    model.graph.output.extend(inner)
    onnx.save(model, tmp_path / "inner.onnx")
    entered = run(tmp_path / "inner.onnx", {"x": x})
    for gram, rows, bound in zip(given, [*entered, x][:3], (1e-4, 0.2, 1e-4), strict=True):
        size = rows.shape[1]
        expected = rows.T @ rows
        difference = gram[:size, :size] / np.trace(gram) - expected / np.trace(expected)
        assert np.abs(difference).max() * size < bound  # the second product reads the first's
        assert not gram[size:].any()


def test_memory_of_some_values_at_a_time(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several runs give the same file as one; values that do not fit are weighed by channels."""
    path = products(tmp_path / "m.onnx", 96)
    whole = tensors_of(quantized(path, data))
    monkeypatch.setattr(calibrate, "GRAM_BYTES", 4 * 96 * 96)
    parts = tensors_of(quantized(path, data))
    assert all((whole[name] == parts[name]).all() for name in whole)
    monkeypatch.setattr(calibrate, "GRAM_BYTES", 4 * 96 * 96 - 1)
    searched, few = (tensors_of(quantized(path, data, rounding=r)) for r in ("search", "auto"))
    assert (few["a.q4"] == searched["a.q4"]).all()
    assert (few["b.q4"] == whole["b.q4"]).all()
    assert (few["b.q4"] != searched["b.q4"]).any()


def test_a_matrix_of_two_products_sees_both(tmp_path: Path) -> None:
    """And one that is read from both sides only what is on its side."""
    nodes = [
        node("MatMul", ["x", "w"], ["y"]), node("MatMul", ["z", "w"], ["v"]),
        node("Gemm", ["z", "w"], ["u"], transB=1),
    ]  # fmt: skip
    kind = (F, ["n", 64])
    path = write(tmp_path / "m.onnx", nodes, {"x": kind, "z": kind},
                 {"y": kind, "v": kind, "u": kind}, {"w": normal(64, 64)})  # fmt: skip
    x, z = correlated(500, 64), correlated(500, 64, seed=5)[:, ::-1]
    stored = []
    for name, feeds in (("both", {"x": x, "z": z}), ("swapped", {"x": z, "z": x})):
        np.savez(tmp_path / f"{name}.npz", **feeds)  # type: ignore[arg-type]
        stored.append(tensors_of(quantized(path, tmp_path / f"{name}.npz")))
    names = [name for name in stored[0] if name.startswith("w") and "scale" not in name]
    assert len(names) == 2
    same = [bool((stored[0][name] == stored[1][name]).all()) for name in names]
    assert sorted(same) == [False, True]


def test_entries_of_a_batch_count_the_same(tmp_path: Path) -> None:
    """One of 3 rows as much as one of 9; all 42 rows say as much as 32 equal ones."""
    path = write(tmp_path / "m.onnx", [node("MatMul", ["x", "w"], ["y"])],
                 {"x": (F, ["n", "t", 64])}, {"y": (F, ["n", "t", 64])},
                 {"w": normal(64, 64)})  # fmt: skip
    batches = [normal(2, 3, 64), normal(4, 9, 64, seed=1)]
    samples = calibrate.Calibration([{"x": batch} for batch in batches])
    gram = samples.gram(Editor(read_source(path)), "x", {"x": 64})
    expected = sum(e.T @ e / len(e) for batch in batches for e in batch)
    assert gram is not None
    np.testing.assert_allclose(gram.matrix, expected, rtol=1e-4, atol=1e-4)
    assert gram.rows == 32  # (6 / 3 + 36 / 9)^2 / (6 / 9 + 36 / 81)


def test_values_that_are_infinite(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    path = write(tmp_path / "m.onnx", nodes, {"x": (F, ["n", 64])}, {"y": (F, ["n", 64])},
                 {"w": normal(64, 64)})  # fmt: skip
    x = correlated(80, 64)
    x[3, 4] = 1e30
    np.savez(tmp_path / "s.npz", x=x)
    searched, auto = (
        tensors_of(quantized(path, tmp_path / "s.npz", rounding=r)) for r in ("search", "auto")
    )
    assert all((searched[name] == auto[name]).all() for name in searched)


# ---- texts ---------------------------------------------------------------------------------------

WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "slept", "all", "day", ".")
VOCABULARY = {name: i for i, name in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS))}
NAMES = ("input_ids", "attention_mask", "token_type_ids")


def encoder(
    path: Path,
    names: tuple[str, ...] = NAMES,
    shape: tuple[int | str, int | str] = ("batch", "tokens"),
    rows: int = len(VOCABULARY),
) -> Path:
    """A table's rows times a mask, and a product of them."""
    nodes = [
        node("Gather", ["table", names[0]], ["rows"]),
        *[node("Cast", [name], [f"{name}.float"], to=F) for name in names[1:]],
        node("Sum", [f"{name}.float" for name in names[1:]], ["mask"]),
        node("Unsqueeze", ["mask", "last"], ["column"]),
        node("Mul", ["rows", "column"], ["masked"]),
        node("MatMul", ["masked", "w"], ["y"]),
    ]
    tensors = {"table": normal(rows, 64), "w": normal(64, 64), "last": np.array([2])}
    return write(path, nodes, dict.fromkeys(names, (I64, shape)), {"y": (F, [*shape, 64])},
                 tensors)  # fmt: skip


def text_of(path: Path, lines: int = 60, words: int = 9) -> Path:
    """Lines of one word and more."""
    generator = np.random.default_rng(0)
    chosen = [generator.choice(WORDS, 1 + i % words) for i in range(lines)]
    path.write_text("\n\n".join(" ".join(line) for line in chosen), "utf-8")
    return path


def read(model: Path, text: Path, **options: Any) -> list[Feeds]:
    return Inputs(Editor(read_source(model))).read(text, Normalization(), **options)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """Beside the model."""
    hugging_face.word_piece(VOCABULARY).save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_lines_are_samples(tmp_path: Path, tokenizer: Path) -> None:
    """All lines, and shortened ones, with special tokens; those of one length together."""
    text = text_of(tmp_path / "text.txt", words=12)
    samples = read(encoder(tmp_path / "m.onnx"), text)
    rows = {tuple(row) for feeds in samples for row in feeds["input_ids"].tolist()}
    lines = [line.split() for line in text.read_text("utf-8").split("\n\n")]
    encoded = [tuple(VOCABULARY[word] for word in line) for line in lines]
    short = {
        (*ids[: n - 1], ids[-1]) for ids in encoded for n in (2, 3, 4, 5, 7, 10) if n < len(ids)
    }
    assert rows <= {(2, *ids, 3) for ids in (*encoded, *short)}
    assert rows >= {(2, *ids, 3) for ids in encoded}
    assert len(rows - {(2, *ids, 3) for ids in encoded}) > 100
    lengths = [feeds["input_ids"].shape[1] for feeds in samples]
    assert {*lengths} == {*range(3, 15)}
    for feeds in samples:
        assert {name: x.dtype for name, x in feeds.items()} == dict.fromkeys(NAMES, np.int64)
        assert feeds["attention_mask"].all()
        assert not feeds["token_type_ids"].any()


def test_long_lines_are_cut(tmp_path: Path, tokenizer: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat " * 200, "utf-8")
    lengths = [f["input_ids"].shape[1] for f in read(encoder(tmp_path / "m.onnx"),
               tmp_path / "text.txt") for _ in f["input_ids"]]  # fmt: skip
    assert lengths.count(LENGTH) == 3
    assert 400 - 3 * (LENGTH - 2) + 2 in lengths


def test_inputs_of_a_fixed_size_are_padded(tmp_path: Path, tokenizer: Path) -> None:
    text = text_of(tmp_path / "text.txt")
    samples = read(encoder(tmp_path / "m.onnx", shape=(1, 8)), text)
    assert {feeds["input_ids"].shape for feeds in samples} == {(1, 8)}
    for feeds in samples:
        [ids], [mask] = feeds["input_ids"].tolist(), feeds["attention_mask"].tolist()
        count = ids.index(3) + 1
        assert mask == [1] * count + [0] * (8 - count)


@pytest.mark.parametrize("folder", [".", "onnx"])
def test_a_text_for_the_command(tmp_path: Path, tokenizer: Path, folder: str) -> None:
    """The tokenizer is beside the model, or in the folder above, as on the hub."""
    (tmp_path / folder).mkdir(exist_ok=True)
    model = encoder(tmp_path / folder / "m.onnx")
    text = text_of(tmp_path / "text.txt")
    out = tmp_path / "out.onnx"
    assert main([str(model), "--int4", "--pure", "--calibrate", str(text), "-o", str(out)]) == 0
    other = tmp_path / "other.onnx"
    assert main([str(model), "--int4", "--pure", "--calibrate", str(text), "-o", str(other),
                 "--tokenizer", str(tokenizer), "--method", "gptq"]) == 0  # fmt: skip
    assert out.read_bytes() == other.read_bytes()
    arguments = [str(model), "--int4", "--pure", "-o", str(other), "--method", "search", "--force"]
    assert main([*arguments, "--calibrate", str(text)]) == 0
    assert out.stat().st_size == other.stat().st_size
    assert out.read_bytes() != other.read_bytes()


BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "expected a text of at least 256 tokens to calibrate with, found 0"),
    "spaces": (b" \n\n" * 999, "at least 256 tokens to calibrate with, found 0"),
    "short": (b"the cat sat", "at least 256 tokens to calibrate with, found 3"),
    "binary": (b"abc\0" * 999, "found a zero byte at 3"),
    "latin": ("Zoë".encode("latin-1"), "expected a text in UTF-8 to calibrate with, found the"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_texts(
    kind: str, tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, message = BAD[kind]
    model, text = encoder(tmp_path / "m.onnx"), tmp_path / "text"
    text.write_bytes(data)
    before = sorted(tmp_path.iterdir())
    assert main([str(model), "--int4", "--calibrate", str(text)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(text) in error
    assert message in error
    assert sorted(tmp_path.iterdir()) == before


def test_models_that_take_no_text(tmp_path: Path, tokenizer: Path) -> None:
    text = text_of(tmp_path / "text.txt")
    models: dict[str, dict[str, Any]] = {
        r"input 'past' \['batch', 'tokens'\]: a text is for encoders": {
            "names": ("input_ids", "past")
        },
        r"input 'input_ids' \[2, 'tokens'\]: a text is for encoders": {"shape": (2, "tokens")},
        "expected an input 'input_ids', found": {"names": ("position_ids", "attention_mask")},
        "expected the model's tokenizer, found one with a token": {"rows": 9},
    }
    for message, options in models.items():
        with pytest.raises(HalfbyteError, match=message):
            read(encoder(tmp_path / "m.onnx", **options), text)
    tokenizer.unlink()
    with pytest.raises(
        HalfbyteError, match=r"expected the model's tokenizer.json beside .*m\.onnx"
    ):
        read(encoder(tmp_path / "m.onnx"), text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--int4", "--method", "gptq"], "method 'gptq': expected samples of an ONNX model"),
        (["--int4", "--method", "tuned"], "--method tuned is for language models"),
        (["--int4", "--method", "gptq", "--rtn", "--calibrate", "s.npz"], "expected no rtn"),
        (["--fp16", "--method", "search"], "expected type 'int8' or 'int4' with weights in blocks"),
        (["--int4", "--tokenizer", "t.json"], "--tokenizer is for llama2.c models, and for a text"),
    ],
)
def test_options_that_exclude_each_other(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = products(tmp_path / "m.onnx", 64)
    assert main([str(model), *options]) == 2
    assert message in capsys.readouterr().err
