"""For any input a command exits with 0, or with 2 and one printable line on stderr."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.onnx.session.models import added
from tests.support.sampled import sampled

from halfbyte.cli import main, quantize_command
from halfbyte.cli.commands import make_parser

MODELS = [  # commands that open a model, which is the argument in braces
    ["run", "{}", "Once"], ["run", "{}", "Once", "--beams", "2"], ["chat", "{}"],
    ["tokenize", "{}", "Once"], ["info", "{}"], ["info", "{}", "--json", "--program"],
    ["embed", "{}", "{heldout}"],
    ["perplexity", "{}", "--text", "{heldout}"], ["bench", "{}", "-r", "1"], ["eval", "{}"],
    ["eval", "{}", "--workload", "trace"], ["fit", "{}", "--device", "pixel-6"],
    ["simulate", "{}", "--device", "pixel-6"], ["compare", "{}", "--device", "pixel-6"],
    ["quantize", "{}", "--int4", "-o", "{out}"],
    ["quantize", "{}", "--type", "q4_k_m"], ["web", "{}", "--export", "{out}"],
]  # fmt: skip
OTHERS = [  # other files
    ["run", "{model}", "-n", "2", "--file", "{}"], ["run", "{model}", "x", "--template", "{}"],
    ["run", "{model}", "x", "-n", "2", "--tokenizer", "{}"], ["run", "{graph}", "--input", "{}"],
    ["tokenize", "{model}", "--file", "{}"], ["perplexity", "{model}", "--text", "{}"],
    ["eval", "{graph}", "--input", "{}"], ["eval", "--suite", "{}"],
    ["eval", "{graph}", "--tolerances", "{}"], ["device", "show", "{}"],
    ["fit", "{model}", "--device", "{}"],
    ["simulate", "{model}", "--device", "pixel-6", "--draws", "2", "--workload", "{}"],
    ["quantize", "{model}", "--int4", "-o", "{out}", "--tokenizer", "{}"],
    ["quantize", "{graph}", "--int8", "-o", "{out}", "--calibrate", "{}"],
    ["quantize", "{model}", "--int4", "-o", "{}"], ["run", "{graph}", "--output", "{}"],
    ["quantize", "{model}", "--int4", "-o", "{out}", "--json", "{}"],
    ["eval", "{graph}", "--json", "{}"], ["run", "{model}", "{}", "-n", "2"],
]  # fmt: skip
VALUES = [  # numbers and words where others are expected
    ["run", "{model}", "x", option, value]
    for option in (
        "-n", "--temp", "--top-k", "--top-p", "--min-p", "--seed", "--context", "--threads",
        "--beams", "--repetition-penalty", "--frequency-penalty", "--logit-bias", "--memory-budget",
        "--cache", "--level", "--backend", "--stop", "--size", "--runs",
    )
    for value in ("-7", "1e400", "nan", "99999999999999999999", "\x1b[31m", "", "1=nan")
]  # fmt: skip

ODD = ("-7", "1e400", "nan", "9" * 20, "\x1b[31m\n", "", "x" * 3000, "a=b", "none.toml")


def _bytes(start: bytes, seed: int = 0, size: int = 2000) -> Callable[[Path], None]:
    return lambda path: void(path.write_bytes(start + random.Random(seed).randbytes(size)))


def void(_: object) -> None:
    """Discard the result of a function."""


GARBAGE: dict[str, Callable[[Path], None]] = {
    "missing": lambda path: None,
    "empty": lambda path: path.touch(),
    "folder": lambda path: path.mkdir(),
    "junk": _bytes(b""),
    "zeros": lambda path: void(path.write_bytes(bytes(5000))),
    "gguf": _bytes(b"GGUF\3\0\0\0"),
    "zip": _bytes(b"PK\3\4"),
    "pickle": _bytes(b"\x80\2"),
    "onnx": _bytes(b"\x08\x08\x12\x03abc:\xff\xff\xff\x7f"),
    "safetensors": _bytes(b"\x10\0\0\0\0\0\0\0{"),
    "npy": _bytes(b"\x93NUMPY\1\0"),
    "json": lambda path: void(path.write_text('{"model": {"type": "BPE"}, "a": [1, {}]}')),
    "text": lambda path: void(path.write_text("[[model]]\nmodel = 7\nx = \x1b[31m\n" * 50)),
    "nested": lambda path: void(path.write_text("[" * 5_000)),
    "loop": lambda path: path.symlink_to(path.name),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("garbage") / "graph.onnx"
    path.write_bytes(added())
    return path


def check(
    words: list[str], given: str, paths: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> int:
    """Run a command; returns its exit code."""
    for name, value in {"{}": given, **paths}.items():
        words = [word.replace(name, str(value)) for word in words]
    try:
        code = main(words)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    error = capsys.readouterr().err
    assert code in (0, 2), (words, code, error)
    if code == 2:
        assert error.endswith("\n"), words
        line = error.splitlines()[-1]
        assert error.count("\n") == 1, (words, error)
        assert line.isprintable(), (words, error)
        assert line.startswith("error: "), (words, error)
        assert len(line) < 2000, (words, error)
        assert "a mistake in halfbyte" not in line, (words, error)
    return code


@pytest.mark.parametrize("kind", sampled(GARBAGE, 2))
def test_garbage(
    kind: str, storyteller: Path, graph: Path, repository: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    heldout = repository / "tests/data/storyteller-heldout.txt"
    paths = {"{model}": storyteller, "{graph}": graph, "{heldout}": heldout}
    for number, words in enumerate([*MODELS, *OTHERS]):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        given = folder / ("a\x1b[31m\nb" if number % 3 else "plain")
        GARBAGE[kind](given)
        code = check(words, str(given), {**paths, "{out}": folder / "out"}, capsys)
        assert code == 2 or words not in MODELS, words


@pytest.mark.parametrize("words", VALUES, ids=lambda words: " ".join(words[3:]).encode().hex())
def test_values(words: list[str], storyteller: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check([*words, "-n", "2"] if words[3] != "-n" else words, "", {"{model}": storyteller}, capsys)


def _parsers() -> dict[str, argparse.ArgumentParser]:
    """The parsers of all commands, by name."""
    result: dict[str, argparse.ArgumentParser] = {}
    for action in make_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            result |= action.choices
    return {**result, "quantize": quantize_command.make_parser()}


def test_every_command_that_opens_files_is_tested() -> None:
    here = {words[0] for words in (*MODELS, *OTHERS)}
    assert here == set(_parsers()) - {"demo", "pull"}


@pytest.mark.parametrize("name", sampled(_parsers(), 2))
def test_every_option(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options are checked before the model, which does not exist here, is opened."""
    monkeypatch.chdir(tmp_path)
    words = [name, *{"demo": [], "device": ["show", "none"], "pull": ["\x1b/"]}.get(name, ["none"])]
    words += {"quantize": ["--int4"], "web": ["--export", "out"], "fit": ["--device", "pixel-6"],
              "simulate": ["--device", "pixel-6"]}.get(name, [])  # fmt: skip
    for number, action in enumerate(_parsers()[name]._actions):
        if action.option_strings and action.nargs is None:
            for value in (ODD[0], *ODD[1 + number % 4 :: 4]):  # the others at other options
                code = check([*words, f"{action.option_strings[-1]}={value}"], "", {}, capsys)
                assert code == 2 or name == "demo", (words, action.option_strings, value)
    assert name == "demo" or not list(tmp_path.iterdir())
