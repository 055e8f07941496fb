"""Bad input leads to one line, exit code 2, no partial file, and leaves the input untouched."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.formats.files import model_metadata, tensor, weights, write_v0
from tests.quantize.test_quantize import write_model

from halfbyte.cli import quantize as main
from halfbyte.quantize.gguf_writer import write_gguf

COMMAND = "import sys; from halfbyte.cli import quantize as main; sys.exit(main())"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    x = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    return write_model(tmp_path / "model.gguf", {"a.weight": x, "b.weight": x})


def names(folder: Path) -> list[str]:
    """Everything in a folder, including hidden files."""
    return sorted(path.name for path in folder.iterdir())


def line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    return err


def run(*arguments: str | Path) -> int:
    return main([str(a) for a in arguments])


def test_missing_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "none.gguf", "--int4") == 2
    assert "none.gguf: cannot be read: No such file" in line(capsys)


def test_truncated_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model.write_bytes(model.read_bytes()[:-100])
    assert run(model, "--int4") == 2
    assert "model.gguf: tensor 'b.weight'" in line(capsys)
    assert names(model.parent) == ["model.gguf"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite(
    tmp_path: Path, value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.ones((40, 32), np.float32)
    x[33, 7] = value
    path = write_model(tmp_path / "bad.gguf", {"fine": np.ones((2, 32), np.float32), "a": x})
    assert run(path, "--int4") == 2
    expected = f"tensor 'a': expected finite weights, found {value} at row 33, column 7"
    assert expected in line(capsys)
    assert names(tmp_path) == ["bad.gguf"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["attn_q", "attn_norm", "ffn_up", "ffn_down"])
def test_weights_that_are_not_finite_where_channels_are_equalized(
    tmp_path: Path, name: str, value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = weights()
    tensors[f"blk.1.{name}.weight"].reshape(-1)[7] = value
    path = tmp_path / "bad.gguf"
    write_gguf(path, model_metadata(), [tensor(n, v) for n, v in tensors.items()])
    assert run(path, "--int8") == 2
    assert f"tensor 'blk.1.{name}.weight': expected finite weights, found {value}" in line(capsys)
    assert names(tmp_path) == ["bad.gguf"]


def test_squares_beyond_float32(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = weights()
    tensors["blk.0.attn_q.weight"][2, 2] = 3e38
    tensors["blk.1.ffn_up.weight"][:] = 1e30
    path = tmp_path / "huge.gguf"
    write_gguf(path, model_metadata(), [tensor(n, v) for n, v in tensors.items()])
    assert run(path, "--int4") == 0
    out, err = capsys.readouterr()
    assert "blk.0.attn_q.weight: F32: values up to 3e+38 do not fit Q4_0" in out
    assert err == ""


def test_no_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_model(tmp_path / "none.gguf", {})
    assert run(path, "--int4") == 2
    assert "none.gguf: expected a model, found no tensors" in line(capsys)
    assert names(tmp_path) == ["none.gguf"]


def test_names_that_would_steer_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.ones((2, 20), np.float32)
    path = write_model(tmp_path / "m.gguf", {"a\n\x1b[31m": x})
    assert run(path, "--int4", "--verbose") == 0
    out, _ = capsys.readouterr()
    assert "\x1b" not in out
    assert r"a\n\x1b[31m: F16: 20 columns" in out
    x[1, 2] = np.nan
    write_model(path, {"a\n\x1b[31m": x})
    assert run(path, "--int4") == 2
    assert r"tensor 'a\n\x1b[31m': expected finite" in line(capsys)


def test_stdout_that_cannot_show_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_model(tmp_path / "modèle.gguf", {"é": np.ones((2, 20), np.float32)})
    written = io.BytesIO()
    with io.TextIOWrapper(written, encoding="ascii", write_through=True) as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        assert run(path, "--int4") == 0
        assert rb"mod\xe8le.gguf" in written.getvalue()


def test_output_is_the_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_v0(tmp_path / "m.bin")
    tokenizer = tmp_path / "m-tokenizer.bin"
    before = tokenizer.read_bytes()
    for option in ("-o", "--json"):
        assert run(path, "--int4", "--tokenizer", tokenizer, option, tokenizer) == 2
        assert "m-tokenizer.bin: is an input" in line(capsys)
    assert tokenizer.read_bytes() == before
    assert names(tmp_path) == ["m-tokenizer.bin", "m.bin"]


def test_report_replaces_no_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = model.read_bytes()
    link = model.with_name("link.json")
    link.hardlink_to(model)
    for report in (model, link):
        assert run(model, "--int4", "--json", report) == 2
        assert "is an input" in line(capsys)
        assert report.read_bytes() == before
    for output in ([], ["-o", model.parent / "sub" / ".." / "model-int4.gguf"]):
        (model.parent / "sub").mkdir(exist_ok=True)
        assert run(model, "--int4", *output, "--json", model.parent / "model-int4.gguf") == 2
        assert "is also the output" in line(capsys)
    assert names(model.parent) == ["link.json", "model.gguf", "sub"]


def test_more_threads_than_the_system_gives(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr("halfbyte.cli.common.cores", lambda: 16)
    assert run(model, "--int4", "--threads", "9") == 2
    assert "9 threads: can't start new thread; expected fewer" in line(capsys)
    assert names(model.parent) == ["model.gguf"]


def test_output_is_the_input(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = model.read_bytes()
    assert run(model, "--int4", "-o", model) == 2
    assert "is an input" in line(capsys)
    assert model.read_bytes() == before


def test_unwritable_output(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model, "--int4", "-o", model.parent / "nowhere" / "out.gguf") == 2
    assert "nowhere/out.gguf: cannot be written: No such file" in line(capsys)
    assert run(model, "--int4", "-o", model.parent) == 2
    assert "cannot be written: not a regular file" in line(capsys)


def test_bad_keep(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model, "--int4", "--keep", "c.*=F16") == 2
    assert "no tensor's name matches 'c.*'" in line(capsys)
    assert run(model, "--int4", "--keep", "a.*=F8") == 2
    assert "type 'F8': expected one of" in line(capsys)
    assert run(model, "--int4", "--keep", "F16") == 2
    assert "expected PATTERN=TYPE" in line(capsys)
    for threads in ("-1", "0"):
        assert run(model, "--int4", "--threads", threads) == 2
        assert f"--threads {threads}: expected 1 to 4096" in line(capsys)


def test_unwritable_report(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for report in (model.parent / "nowhere" / "r.json", model.parent):
        assert run(model, "--int4", "--json", report) == 2
        assert f"{report}: cannot be written" in line(capsys)
    assert names(model.parent) == ["model.gguf"]


def test_no_type_is_a_usage_error(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(model)
    assert "--int4" in capsys.readouterr().err


def test_full_disk(model: Path) -> None:
    """A limit on file sizes stops the write as a full disk would."""
    script = (
        "import resource, signal, sys; from halfbyte.cli import quantize as main;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); sys.exit(main(sys.argv[1:]))"
    )
    target = model.parent / "out.gguf"
    target.write_bytes(b"what was there before")
    done = subprocess.run(
        [sys.executable, "-c", script, model, "--int8", "-o", target, "--force"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == f"error: {target}: cannot be written: File too large\n"
    assert names(model.parent) == ["model.gguf", "out.gguf"]
    assert target.read_bytes() == b"what was there before"


def is_writing(process: int, folder: Path) -> bool:
    """Whether a process has an unnamed file in this folder open."""
    links = Path(f"/proc/{process}/fd").iterdir()
    with suppress(FileNotFoundError):  # one that is closed meanwhile
        return any(str(link.readlink()).startswith(f"{folder}/#") for link in links)
    return False


def test_interrupt(tmp_path: Path) -> None:
    """Ctrl-C in the middle: exit code 130, one line, no file."""
    block = np.random.default_rng(0).standard_normal((4000, 4000), np.float32)
    path = write_model(tmp_path / "big.gguf", {f"t{i}": block for i in range(4)})
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, path, "--int4", "--threads", "1"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    end = time.monotonic() + 30
    while not is_writing(process.pid, tmp_path):
        assert process.poll() is None
        assert time.monotonic() < end
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.strip() == "interrupted"
    assert names(tmp_path) == ["big.gguf"]
