"""Commands with pipes, files and terminals: what they read, and failed writes."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import pytest
from tests.support.sampled import sampled
from tests.text.chat.models import sentencepiece

import halfbyte
from halfbyte.cli import main

HALFBYTE = [sys.executable, "-c", "import sys; from halfbyte.cli import main; sys.exit(main())"]


@pytest.fixture(scope="module")
def instruct(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a chat template."""
    return sentencepiece(tmp_path_factory.mktemp("streams") / "instruct.gguf")


def call(*words: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"PYTHONWARNINGS": "error"} | options.pop("environment", {})
    return subprocess.run(
        [*HALFBYTE, *map(str, words)], check=False, env=environment, timeout=120,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )  # fmt: skip


def story(path: Path, prompt: str, count: int = 8) -> str:
    with halfbyte.load(path) as model:
        return prompt + model.generate(prompt, max_tokens=count, seed=1)


# ---- prompts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["-"], b"Once upon a time\n"),
        ([], b"Once upon a time\r\n"),
        (["--file", "-"], b"\xef\xbb\xbfOnce upon a time"),
        (["Once", "upon", "--seed", "1", "a", "time"], None),
        (["--file", "{file}"], None),
        (["Once upon a time"], b"something else"),
    ],
)
def test_prompts(storyteller: Path, tmp_path: Path, words: list[str], given: bytes | None) -> None:
    (tmp_path / "prompt.txt").write_text("Once upon a time\n")
    words = [word.replace("{file}", str(tmp_path / "prompt.txt")) for word in words]
    more = {"input": given} if given is not None else {"stdin": subprocess.DEVNULL}
    done = call("run", storyteller, "-n", 8, "--seed", 1, *words, **more)
    assert done.stdout.decode() == story(storyteller, "Once upon a time") + "\n"
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("words", "given", "expected"),
    [
        (["-"], b"One\xffday", "stdin: expected text in UTF-8, found the byte 0xff at 3"),
        (["--file", "none.txt"], b"", "none.txt: No such file or directory"),
        (["--file", "."], b"", ".: Is a directory"),
        (["One", "--file", "-"], b"x", "--file -: expected a text or --file, found both"),
        (["One", "--beams", "2", "--temp", "1"], b"", "--temp: --beams takes the likeliest text"),
        (["One", "--beams", "2", "--stop", "x"], b"", "--stop: --beams takes the likeliest text"),
        (["One", "--beams", "10000"], b"", "--beams 10000: expected at most 64"),
        (["One", "--length-penalty", "1"], b"", "--length-penalty: expected --beams too"),
        (["One", "--raw", "--template", "chatml"], b"", "expected one of the two"),
        (["One", "--template", "none"], b"", "expected one of ['chatml'], or a file"),
        (["One", "--tempr", "1"], b"", "unknown: --tempr; see `halfbyte run --help`"),
        (["One", "-n", "many"], b"", "argument -n: 'many': expected a whole number"),
        (["word " * 1000], b"", "the prompt has 2002 tokens: expected at most 256"),
    ],
)
def test_prompts_that_are_refused(
    storyteller: Path, words: list[str], given: bytes, expected: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    try:
        code: object = main(["run", str(storyteller), *words])
    except SystemExit as stop:
        code = stop.code
    out, error = capsys.readouterr()
    assert (code, out) == (2, "")
    assert error.count("\n") == 1
    assert expected in error
    assert "word word" not in error


def test_a_prompt_goes_through_the_chat_template(instruct: Path, tmp_path: Path) -> None:
    with halfbyte.load(instruct) as model:
        asked = [{"role": "user", "content": "Who is Tom?"}]
        answer = model.chat(asked, temperature=0, max_tokens=9)
        plain = model.generate("Who is Tom?", temperature=0, max_tokens=9)
    words = ["run", instruct, "Who", "is", "Tom?", "--temp", 0, "-n", 9]
    done = call(*words)
    assert done.stdout.decode() == f"{answer}\n"
    assert b"the chat template was applied to the prompt; --raw" in done.stderr
    done = call(*words, "--raw")
    assert done.stdout.decode() == f"Who is Tom?{plain}\n"
    assert b"template" not in done.stderr
    template = tmp_path / "upper.jinja"
    template.write_text("{{ messages[0]['content'] | upper }}")
    done = call(*words, "--template", template, "--json")
    result = json.loads(done.stdout)
    with halfbyte.load(instruct) as model:
        assert result["prompt_ids"] == model.tokenizer.encode("WHO IS TOM?", False)


def test_an_empty_prompt_starts_a_text(instruct: Path) -> None:
    """This includes models with a template: there is no message to answer."""
    done = call("run", instruct, "--temp", 0, "-n", 9, stdin=subprocess.DEVNULL)
    with halfbyte.load(instruct) as model:
        assert done.stdout.decode() == model.generate(temperature=0, max_tokens=9) + "\n"


def test_until_the_end(storyteller: Path) -> None:
    """-1 generates until the story ends; a full context is reported."""
    done = call("run", storyteller, "Once", "-n", -1, "--seed", 1)
    with halfbyte.load(storyteller) as model:
        generation = model.generation("Once", max_tokens=10_000, seed=1)
        assert done.stdout.decode() == "Once" + "".join(generation) + "\n"
        assert generation.finish_reason == "stop"
    done = call("run", storyteller, "Once", "-n", -1, "--seed", 1, "--context", 20)
    assert b"the context of 20 tokens is full; --context takes up to 256\n" in done.stderr


def test_run_as_json(storyteller: Path) -> None:
    done = call("run", storyteller, "Once", "-n", 9, "--seed", 1, "--json")
    result = json.loads(done.stdout)
    with halfbyte.load(storyteller) as model:
        generation = model.generation("Once", max_tokens=9, seed=1, logprobs=0)
        text = "".join(generation)
        assert result["text"] == text == "".join(token["text"] for token in result["tokens"])
        assert [token["id"] for token in result["tokens"]] == generation.ids
        logprobs = [token["logprob"] for token in result["tokens"]]
        assert logprobs == pytest.approx([known.logprob for known in generation.logprobs])
        assert result["prompt_ids"] == generation.prompt_ids
    assert result["finish_reason"] == "length"
    assert min(result[f"{part}_seconds"] for part in ("load", "prompt", "decode")) > 0
    done = call("run", storyteller, "Once", "-n", 9, "--beams", 3, "--json")
    with halfbyte.load(storyteller) as model:
        best = model.beam_search("Once", 3, max_tokens=9)
    assert [text["text"] for text in json.loads(done.stdout)["texts"]] == [b.text for b in best]


def test_more_threads_than_cores_are_refused(storyteller: Path) -> None:
    done = call("run", storyteller, "Once", "-n", 3, "--threads", 1000)
    said = done.stderr.decode().splitlines()
    assert said[0].startswith("--threads 1000: this machine has ")
    assert f"{len(os.sched_getaffinity(0))} threads)" in said[1]
    assert done.returncode == 0
    done = call("bench", storyteller, "--threads", 1000)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


def test_what_looks_like_a_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("run", "chat", "info", "quantize --int4", "tokenize", "fit --device pixel-6"):
        assert main([*command.split(), "org/name"]) == 2
        assert "`halfbyte pull org/name` downloads it" in capsys.readouterr().err
    (tmp_path / "org").mkdir()
    for name in ("org/name", "other/model.gguf", "a/b/c"):
        assert main(["run", name]) == 2
        assert "pull" not in capsys.readouterr().err


def test_tokenize(storyteller: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(storyteller)
    assert main(["tokenize", path, "Once", "upon a time", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    tokenizer = halfbyte.load_tokenizer(path)
    ids, places = tokenizer.encode_with_offsets("Once upon a time")
    assert result["ids"] == [token["id"] for token in result["tokens"]] == ids
    assert [(token["start"], token["end"]) for token in result["tokens"]] == places
    assert (result["count"], result["characters"]) == (len(ids), 16)
    done = call("tokenize", path, input=b"Once upon a time")
    rows = done.stdout.decode().splitlines()
    assert [row.split()[0] for row in rows[1:-1]] == [str(token) for token in ids]
    assert rows[-1] == f"{len(ids)} tokens of 16 characters"
    command = ["tokenize", path, "<s>Once", "--count", "--no-special", "--parse-special"]
    assert main(command) == 0
    assert capsys.readouterr().out == f"{len(tokenizer.encode('<s>Once', False, True))}\n"
    assert main(["tokenize", path]) == 2
    assert "expected a text, --file FILE or a pipe" in capsys.readouterr().err


# ---- streams -------------------------------------------------------------------------------------

ENCODINGS = [
    {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"},
    {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]  # fmt: skip


@pytest.mark.parametrize("environment", sampled(ENCODINGS, 2), ids=["ascii", "latin-1", "C"])
def test_encodings_that_lack_characters(
    storyteller: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Characters outside the encoding are escaped, in answers and in messages."""
    prompt = tmp_path / "prompt"
    prompt.write_text("Once \u2603")
    done = call("run", storyteller, "-n", 3, "--file", prompt, environment=environment)
    assert done.returncode == 0
    assert done.stdout.startswith(b"Once \\u2603")
    done = call("tokenize", storyteller, "--file", prompt, environment=environment)
    assert done.returncode == 0
    done = call("info", os.fsdecode("none-\u2603".encode()), environment=environment)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: none-")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("closed", sampled([">&-", "2>&-", "<&-", "<&- >&- 2>&-"], 3))
def test_closed_streams(storyteller: Path, closed: str) -> None:
    for words in (["run", storyteller, "Once", "-n", 3], ["run"]):
        line = f'"$@" {closed}'
        done = subprocess.run(
            ["sh", "-c", line, "sh", *HALFBYTE, *map(str, words)], capture_output=True, check=False
        )
        assert done.returncode == (0 if len(words) > 1 else 2)
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["run", "-n", "3", "{}", "Once"], ["info", "{}"], ["--help"]])
def test_a_full_disk(storyteller: Path, words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = call(*(word.replace("{}", str(storyteller)) for word in words), stdout=full)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == b"error: No space left on device"


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["device", "list"]])
def test_a_closed_pipe(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = call(*words, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "module", ["numpy", "halfbyte.cli.commands", "halfbyte.core.backends.native"]
)
def test_ctrl_c_during_start(storyteller: Path, module: str) -> None:
    """An interrupt while a module is imported gives one line."""
    code = (
        "import sys, signal, importlib.abc\n"
        "class Finder(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}: signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from halfbyte.cli import main\n"
        "sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "run", str(storyteller)]
    done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"\ninterrupted\n")


def test_entry_points_import_little() -> None:
    """Modules imported before Ctrl-C is handled take milliseconds."""
    code = "import sys, halfbyte.cli; print([m for m in ('numpy', 'argparse') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"


# ---- at a terminal -------------------------------------------------------------------------------


class Terminal:
    """A command whose stdin and stderr are a terminal."""

    def __init__(self, *words: object, typed: str) -> None:
        mine, its = pty.openpty()
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [*HALFBYTE, *map(str, words)], stdin=its, stderr=its, stdout=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        os.close(its)
        os.write(mine, typed.encode())
        self.shown = b""
        while True:
            try:
                part = os.read(mine, 4096)
            except OSError:  # nobody has it open any more
                break
            self.shown += part
        os.close(mine)
        stdout: IO[bytes] | None = self.process.stdout
        assert stdout is not None
        self.out = stdout.read()
        stdout.close()
        self.code = self.process.wait(60)


def test_other_files_are_replaced_after_a_question(storyteller: Path, tmp_path: Path) -> None:
    """A terminal asks; elsewhere it is refused. `--force` and our own files need no question."""
    target, report = tmp_path / "out.gguf", tmp_path / "report.json"
    command = ["quantize", storyteller, "--int4", "-o", target, "--json", report]
    target.write_text("precious")
    done = call(*command, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert b"halfbyte did not write it: expected another --output, or --force" in done.stderr
    terminal = Terminal(*command, typed="n\n")
    assert b"Replace it? [y/N]" in terminal.shown
    assert (terminal.code, target.read_text()) == (2, "precious")
    assert Terminal(*command, typed="y\n").code == 0
    assert call(*command, stdin=subprocess.DEVNULL).returncode == 0  # both are ours now
    report.write_text('{"name": "package.json"}')
    assert call(*command, stdin=subprocess.DEVNULL).returncode == 2
    assert call(*command, "--force", stdin=subprocess.DEVNULL).returncode == 0
    assert json.loads(report.read_text())["output"] == str(target)


def test_a_repository_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    terminal = Terminal("run", "org/name", typed="n\n")
    assert b"Download it from the Hugging Face hub? [y/N]" in terminal.shown
    assert b"`halfbyte pull org/name` downloads it" in terminal.shown
    terminal = Terminal("run", "org/name", typed="y\n")
    assert b"error: org/name: could not be fetched" in terminal.shown
    assert terminal.code == 2


def test_ctrl_c_at_a_terminal(storyteller: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "prompt")
    process = subprocess.Popen(
        [*HALFBYTE, "run", str(storyteller), "--file", str(tmp_path / "prompt")],
        stderr=subprocess.PIPE,
    )
    with (tmp_path / "prompt").open("wb"):  # opens when the command does
        time.sleep(0.2)  # Python notices a signal just before it reads only once it has read
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, b"\ninterrupted\n")
