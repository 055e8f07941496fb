"""What enters matrices, as the quantizer sees it layer by layer, and what is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.support.sampled import sampled
from tests.text.architectures import models

import halfbyte
from halfbyte.cli import quantize as main
from halfbyte.core import ops
from halfbyte.core.backends import open_program
from halfbyte.errors import HalfbyteError, UnsupportedError
from halfbyte.quantize import compensation, quantize_file
from halfbyte.quantize.calibration import texts
from halfbyte.quantize.calibration.segments import Segments, State, Tokens
from halfbyte.quantize.calibration.statistics import Moments, Statistics
from halfbyte.quantize.compensation import compensated, factors
from halfbyte.quantize.encode import Codec
from halfbyte.quantize.equalize import Scales
from halfbyte.quantize.methods import METHODS, Task
from halfbyte.quantize.scale_search import search
from halfbyte.text.opening import open_model
from halfbyte.text.planning import Settings, capture_model
from halfbyte.text.tokenizers import from_metadata
from halfbyte.weights import F32 as FLOAT
from halfbyte.weights import FORMATS, F32Array, ScaledFormat

SCALED = [f for f in FORMATS.values() if issubclass(f, ScaledFormat) and f.presets]
NAMES = [name for name in models.CONFIGS if name != "gemma3n"]


def observed(path: Path, windows: list[Tokens]) -> tuple[list[State], dict[str, Moments]]:
    """What the last segment computes, and the statistics of all."""
    segments, statistics = Segments(open_model(path), windows), Statistics(1 << 24)
    states = segments.start()
    for segment in segments:
        states = list(segments.run(segment, states, statistics))
    return states, statistics.moments


@pytest.mark.parametrize("name", sampled(NAMES, 12))
def test_segments_are_the_model(name: str, tmp_path: Path) -> None:
    """To the bit, for a text of several runs of the head."""
    path, ids = models.write(tmp_path / "model.gguf", name), models.ids(name)
    states, _ = observed(path, [np.array(ids, np.int32), np.array(ids[:5], np.int32)])
    with halfbyte.load(path, activations="float", cache="f32") as model:
        for state, count in zip(states, (len(ids), 5), strict=True):
            np.testing.assert_array_equal(state["logits"], model.logits(ids[:count]))


def test_a_model_that_takes_rows_elsewhere_is_refused(tmp_path: Path) -> None:
    path = models.write(tmp_path / "model.gguf", "gemma3n")
    with pytest.raises(UnsupportedError, match="--method search"):
        quantize_file(path, "int4", tmp_path / "out.gguf", method="gptq")
    assert [p.name for p in tmp_path.iterdir()] == ["model.gguf"]


def recomputed(path: Path, ids: Tokens) -> dict[str, list[F32Array]]:
    """The rows that enter each matrix, of each expert, by the definitions in NumPy."""
    settings = Settings(context=len(ids), batch=len(ids), cache="f32", activations="float")
    program = capture_model(open_model(path), settings)
    executable = open_program(program, "numpy")
    executable.array(program.inputs["ids"])[...] = ids
    registers = {"n": len(ids), "position": 0, "rows": 1}
    rows: dict[str, list[F32Array]] = {}
    for number, instruction in enumerate(program.instructions):
        operands: Any = instruction.operands
        if instruction.operator in (ops.matmul, ops.matmul_experts):
            tensor = operands["w"].value
            x = np.array(executable.array(operands["x"])).reshape(-1, tensor.columns)
            ends = [len(x)]
            if "ends" in operands:
                ends = executable.array(operands["ends"])[:-1].tolist()
            name = (tensor.whole or tensor).name
            rows[name] = np.split(x, ends if "ends" in operands else [])
        executable.step(number, registers)
    return rows


@pytest.mark.parametrize("name", ["llama", "phi3", "mixtral"])
def test_statistics_are_those_of_the_rows(name: str, tmp_path: Path) -> None:
    """Also of matrices that are parts of a tensor, and of experts: of the rows of their tokens."""
    path, ids = models.write(tmp_path / "model.gguf", name), np.array(models.ids(name), np.int32)
    _, moments = observed(path, [ids])
    expected = recomputed(path, ids)
    layers = {n for n in expected if n.startswith("blk.")}
    assert layers == {n for n in moments if n.startswith("blk.")}
    for tensor in layers:
        found = moments[tensor]
        assert found.counts.tolist() == [len(x) for x in expected[tensor]]
        assert found.grams is not None
        for x, gram, squares in zip(expected[tensor], found.grams, found.squares, strict=True):
            np.testing.assert_allclose(gram, x.T @ x, rtol=1e-4, atol=1e-4 * np.abs(gram).max())
            np.testing.assert_allclose(squares, np.square(x).sum(0), rtol=1e-3)
    assert (expected.keys() - layers) == (moments.keys() - layers)  # the head


def test_a_head_is_observed_without_its_logits(storyteller: Path) -> None:
    """The same statistics, of all that products read."""
    ids = np.arange(1, 40, dtype=np.int32)
    _, expected = observed(storyteller, [ids])
    segments, statistics = Segments(open_model(storyteller), [ids]), Statistics(1 << 24)
    states = segments.start()
    for segment in segments:
        states = list(segments.run(segment, states, statistics, logits=False))
    assert states == [{}]
    assert statistics.moments.keys() == expected.keys()
    for name, moments in statistics.moments.items():
        np.testing.assert_array_equal(moments.grams, expected[name].grams)
        np.testing.assert_array_equal(moments.counts, expected[name].counts)


def test_statistics_of_experts_that_nothing_entered() -> None:
    moments = Moments(np.array([[4.0, 8.0], [0.0, 0.0]]), np.array([2, 0]))
    np.testing.assert_array_equal(moments.means(), [[2, 4], [1, 1]])


def activations(rows: int, columns: int, seed: int = 0) -> F32Array:
    """Correlated numbers, as activations are."""
    generator = np.random.default_rng(seed)
    hidden = generator.standard_normal((rows, columns // 4))
    mixed = hidden @ generator.standard_normal((columns // 4, columns))
    sizes = np.exp(generator.standard_normal(columns) / 2)
    return ((mixed + generator.standard_normal(mixed.shape)) * sizes).astype(np.float32)


def loss(x: F32Array, w: F32Array, q: F32Array) -> float:
    return float(np.square(x @ (w - q).T).sum())


@pytest.mark.parametrize("format_", SCALED)
def test_compensation_loses_less(format_: type[ScaledFormat]) -> None:
    """|(W - Q) X^T|^2 beside the search's with weights of channels; decoded by the format."""
    x, codec = activations(600, 512), Codec()
    w = np.random.default_rng(1).standard_normal((40, 512), np.float32)
    found, _ = search(w, np.square(x).mean(0), format_, codec.steps)
    known = factors(x.T @ x, 10**6)
    rows = compensated(w, *known, format_, codec.steps)
    assert rows.shape == (40, format_.row_bytes(512))
    assert loss(x, w, format_.decode(rows)) < 0.6 * loss(x, w, format_.decode(found))
    np.testing.assert_array_equal(rows, compensated(w, *known, format_))


def test_compensation_of_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = activations(600, 256), np.random.default_rng(1).standard_normal((23, 256))
    known, w = factors(x.T @ x, len(x)), w.astype(np.float32)
    expected = FORMATS["Q4_K"].decode(compensated(w, *known, FORMATS["Q4_K"]))
    monkeypatch.setattr(compensation, "_ROWS", 5)
    monkeypatch.setattr(compensation, "_NUMBERS", 5 * 256)
    found = FORMATS["Q4_K"].decode(compensated(w, *known, FORMATS["Q4_K"]))
    assert (found == expected).mean() > 0.99  # BLAS may add up in another order


@pytest.mark.parametrize("format_", SCALED)
def test_choosing_again_loses_less(format_: type[ScaledFormat]) -> None:
    """Each time, by the sum that is minimized, though not by much."""
    x, codec = activations(600, 512), Codec()
    w = np.random.default_rng(1).standard_normal((40, 512), np.float32)
    feedback, weights = factors(x.T @ x, 10**6)
    h = (feedback * weights) @ feedback.T
    sums = []
    for sweeps in range(4):
        rows = compensated(w, feedback, weights, format_, codec.steps, sweeps)
        e = w - format_.decode(rows)
        sums.append(float(((e @ h) * e).sum()))
    assert sums == sorted(sums, reverse=True)
    assert sums[2] < 0.95 * sums[0]


def test_compensation_minimizes_what_it_says() -> None:
    """A column's target makes up for the errors before it: the loss is that of the targets."""
    gram = activations(99, 32).T @ activations(99, 32)
    feedback, weights = factors(gram, 10**9, damping=1e-9)
    errors = np.random.default_rng(2).standard_normal((5, 32))
    terms = errors @ np.triu(feedback.astype(np.float64))
    mean = np.trace(gram) / 32
    expected = np.einsum("ij,jk,ik->i", errors, gram / mean, errors)
    np.testing.assert_allclose((terms**2 * weights).sum(1), expected, rtol=1e-3)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_compensation_with_few_rows_and_dead_channels(rows: int) -> None:
    x, format_ = activations(50, 64)[:rows], SCALED[0]
    x[:, 7:20] = 0
    w = np.random.default_rng(1).standard_normal((9, 64), np.float32)
    decoded = format_.decode(compensated(w, *factors(x.T @ x, len(x)), format_))
    assert np.isfinite(decoded).all()
    assert np.abs(decoded - w).max() < 0.5


def test_activations_that_are_not_finite() -> None:
    class Named:
        name, columns = "blk.0.ffn_up.weight", 4

    x = np.ones((3, 4), np.float32)
    x[1, 2] = np.inf
    with pytest.raises(HalfbyteError, match=r"'blk.0.ffn_up.weight': .* found channel 2 infinite"):
        Statistics()([Named()], {"x": x})  # type: ignore[list-item]


@pytest.fixture(scope="module")
def stories(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some held-out stories."""
    text = (repository / "tests/data/storyteller-heldout.txt").read_text("utf-8")
    path = tmp_path_factory.mktemp("stories") / "stories.txt"
    path.write_text(text[:10000], "utf-8")
    return path


def divergence(path: Path, other: Path, stories: list[str]) -> float:
    """Mean KL of another model's distributions on some stories."""
    logs: list[list[npt.NDArray[np.float64]]] = [[], []]
    for file, parts in zip((path, other), logs, strict=True):
        with halfbyte.load(file, threads=1, activations="float") as model:
            for story in stories:
                z = model.logits(model.tokenizer.encode(story)[: model.context]).astype(np.float64)
                parts.append(z - np.log(np.exp(z).sum(axis=1, keepdims=True)))
    p, q = map(np.concatenate, logs)
    return float((np.exp(p) * (p - q)).sum(axis=1).mean())


def test_a_text_lowers_the_divergence(
    storyteller: Path, stories: Path, tmp_path: Path, repository: Path
) -> None:
    """On another text, of the shipped model in Q4_0."""
    held = (repository / "tests/data/storyteller-heldout.txt").read_text("utf-8")
    some = held.strip().split("\n\n")[-8:]
    rtn, better = tmp_path / "rtn.gguf", tmp_path / "better.gguf"
    quantize_file(storyteller, "int4", rtn, rtn=True, threads=1)
    report = quantize_file(storyteller, "int4", better, calibrate=stories, threads=1)
    assert better.stat().st_size == rtn.stat().st_size
    assert any("tokens of the text" in note for note in report.notes)
    assert divergence(storyteller, better, some) < 0.85 * divergence(storyteller, rtn, some)


def test_the_search_weighs_channels(storyteller: Path, tmp_path: Path) -> None:
    """Errors are smaller where activations are large."""
    file, codec, name = open_model(storyteller), Codec(), "blk.3.ffn_down.weight"
    windows = [np.arange(1, 200, dtype=np.int32)]
    rows = METHODS["search"](Task(file, {name: FORMATS["Q4_0"]}, windows, codec))
    assert [*rows] == [name]
    _, moments = observed(storyteller, windows)
    w, means = file.tensors[name].decode(), moments[name].means()[0]
    plain, _ = codec.search(FORMATS["Q4_0"], w, np.ones(len(means), np.float32))  # type: ignore[arg-type]
    losses = [
        np.square(w - FORMATS["Q4_0"].decode(encoded)) @ means for encoded in (rows[name], plain)
    ]
    assert losses[0].sum() < 0.95 * losses[1].sum()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models write short texts."""
    monkeypatch.setattr(texts.own_windows, "__defaults__", (100,))


def test_without_a_text_the_model_writes_one(storyteller: Path, short: None) -> None:
    """The same one each time."""
    windows = texts.own_windows(open_model(storyteller), 1, lambda share: None)
    again = texts.own_windows(open_model(storyteller), 1, lambda share: None)
    assert sum(map(len, windows)) > 100
    assert [w.tolist() for w in windows] == [w.tolist() for w in again]
    assert all(w[0] == 1 for w in windows)


def test_progress(short: None, tmp_path: Path) -> None:
    path = models.write(tmp_path / "model.gguf", "llama")
    progress: list[tuple[int, int]] = []
    report = quantize_file(
        path, "int4", tmp_path / "out.gguf", method="gptq", threads=1,
        progress=lambda done, total: progress.append((done, total)),
    )  # fmt: skip
    assert "that the model wrote" in report.notes[-1]
    assert progress == sorted(progress)
    assert progress[-1][0] >= 0.95 * progress[-1][1]


def test_equalized_file(storyteller: Path) -> None:
    """The float model that a method sees has the scales, and the same function."""
    file = open_model(storyteller)
    scales = Scales(columns={"blk.0.ffn_norm.weight": np.full(128, 4, np.float32)})
    for name in ("ffn_gate", "ffn_up"):
        scales.columns[f"blk.0.{name}.weight"] = np.full(128, 0.25, np.float32)
    scaled = scales.of_file(file)
    assert scaled.tensors["blk.0.ffn_up.weight"].format is FLOAT
    ids = [np.arange(1, 30, dtype=np.int32)]
    results = []
    for each in (file, scaled):
        segments = Segments(each, ids)
        states = segments.start()
        for segment in segments:
            states = list(segments.run(segment, states))
        results.append(states[0]["logits"])
    np.testing.assert_array_equal(*results)


def test_windows_begin_where_the_model_predicts_better(storyteller: Path, repository: Path) -> None:
    """Each story has its own, but parts of sentences follow each other."""
    text = (repository / "tests/data/storyteller-heldout.txt").read_text("utf-8").strip()
    file, stories = open_model(storyteller), text.split("\n\n")
    encode = from_metadata(file).encode
    windows = texts.windows_of(file, text, "text")
    assert [w.tolist() for w in windows] == [encode(story) for story in stories]
    parts = " ".join(stories).replace(" and ", "\n\nand ")
    windows = texts.windows_of(file, parts, "text")
    assert [len(w) for w in windows[:-1]] == [256] * (len(windows) - 1)
    assert [i for w in windows for i in w[1:]] == encode(parts)[1:]


def test_a_long_text_is_read_from_everywhere(
    storyteller: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "MAX_TOKENS", 2000)
    text = (repository / "tests/data/storyteller-heldout.txt").read_text("utf-8").strip()
    file, stories = open_model(storyteller), text.split("\n\n")
    windows = [w.tolist() for w in texts.windows_of(file, text, "text")]
    assert 1500 < sum(map(len, windows)) <= 2200
    encode = from_metadata(file).encode
    assert [windows[0], windows[-1]] == [encode(stories[0]), encode(stories[-1])]


BAD = {
    "spaces": (b" \n\n" * 999, "one that it predicts worse than chance"),
    "empty": (b"", "expected a text of at least 256 tokens to calibrate with, found 0"),
    "short": (b"Once upon a time", "expected a text of at least 256 tokens"),
    "binary": (b"abc\0" * 999, "found a zero byte at 3"),
    "latin": ("Zoë".encode("latin-1"), "expected a text in UTF-8 to calibrate with, found the"),
    "Chinese": ("从前有座山 山里有座庙 ".encode() * 30, "one that it predicts worse than chance"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_texts(
    kind: str, storyteller: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, message = BAD[kind]
    text = tmp_path / "text.txt"
    text.write_bytes(data)
    out = tmp_path / "out.gguf"
    assert main([str(storyteller), "--int4", "--calibrate", str(text), "-o", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(text) in error
    assert message in error
    assert [p.name for p in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize("options", [["--calibrate", "README.md"], ["--method", "gptq"]])
def test_a_context_without_room_for_a_text(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = models.write(
        tmp_path / "model.gguf", "llama",
        change=lambda metadata, _: metadata.update({"llama.context_length": np.uint32(1)}),
    )  # fmt: skip
    assert main([str(path), "--int4", "-o", str(tmp_path / "o.gguf"), *options]) == 2
    assert "expected a context of at least 2 tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "rtn", "--calibrate", "README.md"], "expected no text for rtn"),
        (["--method", "gptq", "--rtn"], "expected no method beside rtn"),
        (["--calibrate", "none.txt"], "none.txt"),
    ],
)
def test_options_that_exclude_each_other(
    options: list[str], message: str, storyteller: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert main([str(storyteller), "--int4", "-o", str(tmp_path / "o"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_an_interrupted_method_leaves_nothing(short: None, tmp_path: Path) -> None:
    """At any point: while the model writes, during the statistics, the rounding, the writing."""
    path = models.write(tmp_path / "model.gguf", "llama")
    shares = []

    def interrupt(done: int, total: int) -> None:
        shares.append(done / total)
        if shares[-1] > limits[0]:
            raise KeyboardInterrupt

    limits = [0.1, 0.4, 0.6, 0.8, 0.95, 0.99]
    while limits:
        with pytest.raises(KeyboardInterrupt):
            quantize_file(
                path, "int4", tmp_path / "o.gguf", method="gptq", threads=1, progress=interrupt
            )
        assert [p.name for p in tmp_path.iterdir()] == ["model.gguf"]
        del limits[0]
