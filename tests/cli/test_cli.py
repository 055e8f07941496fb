"""The command line from a user's perspective."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import halfbyte
from halfbyte.cli import main
from halfbyte.quantize import quantize_file


@pytest.fixture(scope="module")
def small(storyteller: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The shipped model as int4."""
    target = tmp_path_factory.mktemp("cli") / "small.gguf"
    quantize_file(storyteller, "int4", target)
    return str(target)


Capture = pytest.CaptureFixture[str]


def test_run_streams_text_and_prints_statistics(small: str, capsys: Capture) -> None:
    assert main(["run", small, "Once upon a time", "-n", "20", "--temp", "0", "-t", "1"]) == 0
    out, err = capsys.readouterr()
    with halfbyte.load(small, threads=1) as model:
        text = model.generate("Once upon a time", max_tokens=20, temperature=0)
    assert out == f"Once upon a time{text}\n"
    assert "generated 20 tokens" in err
    assert "1 threads" in err


def test_run_is_the_same_on_every_backend(
    small: str, capsys: Capture, native_backends: list[str]
) -> None:
    texts = set()
    for backend in native_backends:
        for threads in ("1", "2"):
            command = ["run", small, "-n", "100", "--seed", "5"]
            assert main([*command, "--backend", backend, "--threads", threads]) == 0
            texts.add(capsys.readouterr().out)
    assert len(texts) == 1


def test_beams(small: str, capsys: Capture) -> None:
    command = ["run", small, "One day", "-n", "12", "--beams", "3", "--length-penalty", "0.5"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    with halfbyte.load(small) as model:
        best = model.beam_search("One day", 3, 0.5, 12)[0]
    assert out == f"One day{best.text}\n"
    assert f"score {best.score:.4f}" in err


def test_seed_determines_the_text(small: str, capsys: Capture) -> None:
    texts = []
    for seed in ("1", "1", "2"):
        assert main(["run", small, "-n", "40", "--seed", seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


def test_profile(small: str, capsys: Capture) -> None:
    assert main(["run", small, "-n", "10", "--profile", "-t", "1"]) == 0
    err = capsys.readouterr().err
    row = next(line.split() for line in err.splitlines() if line.startswith("matmul_int8_q4_0"))
    layers = 5
    assert int(row[1]) == 10 * 7 * layers  # calls: q, k, v, output, gate, up, down
    assert float(row[4]) > 0  # GB/s


def test_passes_off_runs_the_captured_program(small: str, capsys: Capture) -> None:
    assert main(["run", small, "-n", "10", "--profile", "--passes", "off"]) == 0
    err = capsys.readouterr().err
    assert "matmul_int8" not in err
    assert "matmul_q4_0" in err


def test_info(small: str, capsys: Capture) -> None:
    assert main(["info", small, "--context", "100", "--program"]) == 0
    out = capsys.readouterr().out
    for expected in (
        "GGUF v3", "general.architecture", "bits per weight", "planned memory at a context of 100",
        "as captured", "after passes", "MatMulNBits",
    ):  # fmt: skip
        assert expected in out
    assert main(["info", small, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["planned_bytes"]["KV cache"] == 2 * 5 * 256 * 64 * 2
    assert 4.5 < data["bits_per_weight"] < 6


def test_perplexity(small: str, repository: Path, capsys: Capture) -> None:
    text = repository / "tests/data/storyteller-heldout.txt"
    assert main(["perplexity", small, "--text", str(text), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    with halfbyte.load(small) as model:
        assert result["perplexity"] == pytest.approx(model.perplexity(text.read_text()), rel=1e-9)
    assert result["tokens"] > 5000


def test_bench(small: str, capsys: Capture) -> None:
    command = ["bench", small, "-p", "16,32", "-n", "8", "-t", "1,2", "-r", "2"]
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    tests = [(r["test"], r["threads"]) for r in report["results"]]
    assert tests == [(t, n) for n in (1, 2) for t in ("pp16", "pp32", "tg8")]
    assert all(r["tokens_per_second"] > 0 and r["bandwidth"] > 0 for r in report["results"])
    assert main(["bench", small, "-p", "100000"]) == 2
    assert "pp100000: expected at most 256 tokens" in capsys.readouterr().err


def test_demo(capsys: Capture) -> None:
    assert main(["demo", "--seed", "3"]) == 0
    out, err = capsys.readouterr()
    assert len(out.split()) > 40
    assert "quantize storyteller.bin --int4" in err
    assert "x smaller" in err
    assert "tokens/s" in err


def test_quantize_is_also_a_command(storyteller: Path, tmp_path: Path, capsys: Capture) -> None:
    target = tmp_path / "out.gguf"
    assert main(["quantize", str(storyteller), "--int8", "-o", str(target)]) == 0
    assert target.exists()
    assert "bits per weight" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [[], ["run"], ["chat"], ["info"], ["perplexity"], ["bench"], ["demo"], ["quantize"]]
)
def test_help_has_examples(words: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--help"])
    out = capsys.readouterr().out
    assert "usage:" in out
    if words and words != ["demo"]:
        assert "example" in out


BAD = [
    (["run", "none.gguf"], "none.gguf: cannot be read: No such file or directory"),
    (["run", "{model}", "--backend", "gpu"], "backend 'gpu': expected native or one of"),
    (["run", "{model}", "--temp", "-1"], "--temp -1.0: expected 0 or more"),
    (["run", "{model}", "--top-p", "0"], "--top-p 0.0: expected more than 0, at most 1"),
    (["run", "{model}", "--top-k", "-3"], "--top-k -3: expected 0 (all) or more"),
    (["run", "{model}", "--min-p", "3"], "--min-p 3.0: expected 0 to 1"),
    (
        ["run", "{model}", "--repetition-penalty", "0"],
        "--repetition-penalty 0.0: expected more than",
    ),
    (["run", "{model}", "--logit-bias", "9999=1"], "--logit-bias: expected tokens from 0 to 1023"),
    (["run", "{model}", "--stop", ""], "--stop: expected strings of 1 to 1024 characters"),
    (["run", "{model}", "--beams", "0"], "--beams 0: expected 1 or more"),
    (["run", "{model}", "-n", "0"], "-n 0: expected 1 or more"),
    (["run", "{model}", "--threads", "-2"], "--threads -2: expected 1 to 4096"),
    (["run", "{model}", "--threads", "100000000"], "--threads 100000000: expected 1 to 4096"),
    (["run", "{model}", "--context", "999999"], "context of 999999 tokens: expected 1 to 256"),
    (["perplexity", "{model}", "--text", "none.txt"], "none.txt"),
    (["info", "."], ".: is a directory, expected a model file"),
]


@pytest.mark.parametrize(("words", "expected"), BAD)
def test_user_errors_are_one_line(
    small: str, words: list[str], expected: str, capsys: Capture
) -> None:
    assert main([word.replace("{model}", small) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert expected in err


def test_debug_shows_a_traceback() -> None:
    with pytest.raises(halfbyte.errors.HalfbyteError):
        main(["run", "none.gguf", "--debug"])


@pytest.mark.parametrize("more", [[], ["--program"]], ids=["short", "long"])
def test_a_closed_pipe_is_not_an_error(small: str, more: list[str]) -> None:
    """This holds for output that fits into Python's buffer, and for longer output."""
    command = [sys.executable, "-m", "halfbyte", "info", small, *more]
    reading, writing = os.pipe()
    os.close(reading)
    environment = os.environ | {"PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, check=False, env=environment
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
