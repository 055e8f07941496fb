"""Every code block of the README and the guides runs, and prints what it shows.

Shell and Python blocks of a page run in their order in one folder, in which small files stand for
the reader's (`reader_files`). Python blocks of a page share their names, as cells of a notebook do.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from tests.docs.blocks import Block, blocks_of, read_blocks
from tests.docs.reader_files import write_files
from tests.support import aio
from tests.support.http_server import answering

from halfbyte.cli import main, quantize

PAGES = ("README.md", "CONTRIBUTING.md", "docs/guide.md", "docs/device.md", "docs/browser.md")

# Commands that begin like this, and Python blocks that contain it, do not run here.
NOT_RUN = {
    "pip install halfbyte": "installs from PyPI; tests/packaging installs the wheel",
    "make ": "sets up .venv and runs for minutes; CI does",
    "halfbyte pull ": "fetches from the hub; tests/cli/test_pull.py has a hub of its own",
    "halfbyte web": "needs Pyodide, and serves without end; tests/browser does",
    "halfbyte device measure": "takes three minutes; tests/device does it with fewer rounds",
    "quantize model.gguf --type Q3_K_M --method gptq": "the model writes 8,192 tokens for seconds",
    "quantize model.gguf --bits 5": "measures every matrix; tests/quantize/test_budget.py does",
    "quantize model.gguf --size 700KB": "likewise",
    "quantize model.gguf --bits 3.5 --engine ray": "needs Ray; `make test-ray` does",
    "ray start --head": "likewise",
    "halfbyte fit llama-1b": "a model of a billion weights",
    "halfbyte eval mobilenet-int8.onnx": "shows how one processor rounds",
    "python tools/build_wasm.py": "compiles; `make test` does",
    "python tools/fit_thermal.py": "reads recordings; tests/device/test_fitting.py has them",
    "python tools/make_model.py --shape mistral-7b": "writes 4 GB for minutes",
    "python -m benches.browser.wide": "runs 4 GB; tests/browser/test_wide_memory.py has small ones",
    "pip wheel ": "builds; tests/packaging does",
    "pip install jupyterlite": "installs from PyPI; `make test-notebooks` does",
    "jupyter lite ": "needs JupyterLite; `make test-notebooks` does",
    "import micropip": "runs in Pyodide; tests/browser/test_packages.py does",
    "session = await halfbyte.open_session": "fetches; tests/browser/test_threads.py does",
    "import onnxruntime": "refused beside the real one; tests/onnx/session/test_standin.py",
    "from tokenizers import": "refused beside the real one; tests/text/standin/test_install.py",
}
LANGUAGES = {"sh", "python", "toml"}  # "js" and "html" need a page: tests/browser, tests/notebooks
PROGRAMS: dict[str, Callable[[list[str]], int]] = {"halfbyte": main, "quantize": quantize}
SHELL_SYNTAX = set("|<>$;&`")
DECIMAL = re.compile(r"[-+]?\d+(\.\d+)?e[-+]\d+|[-+]?\d+\.\d+")  # measured: the machine's own


@pytest.fixture(scope="module")
def files(storyteller: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_files(folder, storyteller)
    return folder


@pytest.fixture
def reader(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """In a folder that has the reader's files; example.org has a model."""
    home = tmp_path / "home"
    folder = shutil.copytree(files, home / "work")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("sys.stdin", StringIO())
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    with answering() as server:
        server.body = (files / "model.gguf").read_bytes()
        yield Reader(folder, server.url.removesuffix("model.gguf"))


# Counts what the process took before, which here is what other tests imported
BUDGET = "--memory-budget"


class Reader:
    """Follows the instructions of a page."""

    def __init__(self, folder: Path, example: str) -> None:
        self.folder = folder
        self.example = example  # the address of https://example.org/
        self.names: dict[str, object] = {}

    def follow(self, block: Block) -> None:
        """Run a block, or write the file that it shows.

        Raises
        ------
        AssertionError
            The block failed, or printed something else.
        """
        if block.language == "sh":
            printed = "".join(self.shell(block, command) for command in block.commands)
        elif block.language == "python":
            printed = self.python(block)
        else:
            name = re.match(r"# (\S+\.toml)\n", block.text)
            assert name, f"{block.place}: a toml block begins with the name of its file"
            (self.folder / name[1]).write_text(block.text)
            return
        if block.output is not None and not reason_of(block.text):
            assert agrees(printed, block.output), f"{block.place}: printed\n{printed}"

    def shell(self, block: Block, command: str) -> str:
        if reason_of(command):
            return ""
        program, *arguments = shlex.split(command, comments=True)
        if program in PROGRAMS and not set(command) & SHELL_SYNTAX and BUDGET not in arguments:
            code, out, err = called(PROGRAMS[program], arguments)
        else:
            code, out, err = run_by_bash(command)
        assert code == 0, f"{block.place}: {command}\n{out}{err}"
        return out

    def python(self, block: Block) -> str:
        if reason_of(block.text):
            return ""
        source = block.text.replace("https://example.org/", self.example)
        code = compile(
            "\n" * block.line + source, block.page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )
        printed = StringIO()
        with redirect_stdout(printed):
            if code.co_flags & inspect.CO_COROUTINE:
                aio.run(eval(code, self.names))  # noqa: S307 - the pages are ours
            else:
                exec(code, self.names)  # noqa: S102
        return printed.getvalue()


def called(main: Callable[[list[str]], int], arguments: list[str]) -> tuple[int, str, str]:
    """A command in this process: starting Python takes longer than most of them do."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as refused:  # by argparse
            code = int(refused.code or 0)
    return code, out.getvalue(), err.getvalue()


def run_by_bash(command: str) -> tuple[int, str, str]:
    """Commands with pipes and the like."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def reason_of(text: str) -> str | None:
    """Why a command or a Python block does not run here; None if it runs."""
    reasons = (why for key, why in NOT_RUN.items() if f"\n{key}" in f"\n{text}")
    return next(reasons, None)


def agrees(printed: str, shown: str) -> bool:
    """Whether lines are equal except for spaces and decimals; ``...`` stands for any text."""
    pattern = "".join(
        r"(?:.*\n)*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
        for line in _normal(shown)
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _normal(printed))) is not None


def _normal(text: str) -> list[str]:
    plain = re.sub(r"native-\w+", "native", DECIMAL.sub("0.0", text))
    return [" ".join(line.split()) for line in plain.splitlines() if line.strip()]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs(repository: Path, page: str, reader: Reader) -> None:
    blocks = read_blocks(repository, page)
    assert blocks
    for block in blocks:
        if block.language in LANGUAGES:
            reader.follow(block)


def test_nothing_is_excused_in_vain(repository: Path) -> None:
    """Each exception is for a command or a block of the current pages."""
    blocks = [block for page in PAGES for block in read_blocks(repository, page)]
    texts = [text for b in blocks for text in (b.commands if b.language == "sh" else [b.text])]
    assert [key for key in NOT_RUN if not any(f"\n{key}" in f"\n{text}" for text in texts)] == []
    assert {block.language for block in blocks} <= {*LANGUAGES, "js", "html", "http"}


@pytest.mark.parametrize("page", PAGES)
def test_no_block_escapes_by_its_form(repository: Path, page: str) -> None:
    """All are fenced, with a language: the tests would miss indented blocks."""
    text = (repository / page).read_text(encoding="utf-8")
    fences = re.findall(r"^ *```.*$", text, re.MULTILINE)
    assert all(re.fullmatch(r"```\w+", fence) for fence in fences[::2])
    assert set(fences[1::2]) <= {"```"}
    assert not re.search(r"\n\n {4,}\S", text)


@pytest.mark.parametrize(
    ("printed", "shown", "expected"),
    [
        ("a  1.5e-06 b\n", "a 9.1e-07 b\n", True),
        ("on native-avx2\n", "on native-neon\n", True),
        ("one\ntwo\nthree\n", "...\nthree\n", True),
        ("x [2], y [3]\n", "x [2], ...\n", True),
        ("a 2\n", "a 3\n", False),
        ("one\ntwo\n", "one\n", False),
        ("pass\n", "FAIL\n", False),
    ],
)
def test_what_agrees(printed: str, shown: str, expected: bool) -> None:
    assert agrees(printed, shown) == expected


def test_an_output_belongs_to_the_block_before_it() -> None:
    page = "```sh\nls\n```\n\n```text\na\n```\n\n```text\nb\n```\n\nSo:\n\n```text\nc\n```\n"
    blocks = [(block.language, block.text, block.output) for block in blocks_of("page", page)]
    assert blocks == [("sh", "ls\n", "a\n"), ("text", "b\n", None), ("text", "c\n", None)]
