"""`halfbyte chat`, from a pipe and at a terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.support.tools import load_tool
from tests.text.chat.models import MODELS, sentencepiece
from tests.text.chat.templates import HOSTILE

import halfbyte
from halfbyte.cli import main
from halfbyte.cli.chat import messages
from halfbyte.text.chat import Chat, recommended_temperature
from halfbyte.text.chat.template import BUILT_IN
from halfbyte.text.opening import open_model

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module", params=MODELS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODELS[request.param](tmp_path_factory.mktemp("chat") / f"{request.param}.gguf")


def piped(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_from_a_pipe(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """Each line is a message, each answer a line; nothing else, and no colours."""
    questions = ["Tell me of Tom.", "Why?", "And then?"]
    piped(monkeypatch, "\n".join([questions[0], "", *questions[1:]]) + "\n")
    assert main(["chat", str(path), "--temp", "0", "-n", "9", "--system", "Be brief."]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    messages = [{"role": "system", "content": "Be brief."}]
    expected = ""
    with halfbyte.load(path) as model:
        for question in questions:
            messages.append({"role": "user", "content": question})
            answer = model.chat(messages, temperature=0, max_tokens=9)
            messages.append({"role": "assistant", "content": answer})
            expected += f"{answer}\n"
    assert out == expected


def test_the_recommended_temperature(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The file's, without --temp; otherwise the usual one."""
    with halfbyte.load(path) as model:
        expected = None if path.stem == "sentencepiece" else 0.3
        assert recommended_temperature(model.file) == expected
        message = [{"role": "user", "content": "Why?"}]
        answer = model.chat(message, temperature=expected or 0.8, seed=1, max_tokens=20)
        assert answer != model.chat(message, temperature=1.1, seed=1, max_tokens=20)
    piped(monkeypatch, "Why?\n")
    assert main(["chat", str(path), "-n", "20", "--seed", "1"]) == 0
    assert capsys.readouterr().out == f"{answer}\n"


def test_a_recommended_temperature_that_is_none(tmp_path: Path) -> None:
    for number, value in enumerate((np.float32(np.nan), np.float32(-1), np.float32(1e9), "warm")):
        path = sentencepiece(tmp_path / f"{number}.gguf", general__sampling__temp=value)
        assert recommended_temperature(open_model(path)) is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["one", "two"], ["one", "two"]),
        (['"""one', "two", 'three"""', "four"], ["one\ntwo\nthree", "four"]),
        (['"""', "one", "", "  two", '"""'], ["one\n\n  two"]),
        (['"""one"""', "two"], ["one", "two"]),
        (["one\\", "two\\", "three", "four"], ["one\ntwo\nthree", "four"]),
        (['"""one\\', '/reset"""'], ["one\\\n/reset"]),
        (['"""one', "two"], ["one\ntwo"]),
        (["one\\"], ["one"]),
        (['"""one', None, "two"], ["two"]),
        (["one\\", None, "two"], ["two"]),
        (['say """this"""'], ['say """this"""']),
    ],
)
def test_messages_of_several_lines(lines: list[str | None], expected: list[str]) -> None:
    """None is Ctrl-C, which discards a message."""
    left, prompts = list(lines), []

    def read(prompt: str) -> str | None:
        prompts.append(prompt)
        if not left:
            raise EOFError
        return left.pop(0)

    assert list(messages(read)) == expected
    assert prompts[0] == "> "
    assert set(prompts) <= {"> ", "... "}


def test_a_message_of_several_lines_from_a_pipe(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    piped(monkeypatch, '"""Tell me of Tom.\nWho is he?"""\nAnd\\\nthen?\n')
    assert main(["chat", str(path), "--temp", "0", "-n", "9"]) == 0
    with halfbyte.load(path) as model:
        conversation = [{"role": "user", "content": "Tell me of Tom.\nWho is he?"}]
        first = model.chat(conversation, temperature=0, max_tokens=9)
        conversation += [
            {"role": "assistant", "content": first},
            {"role": "user", "content": "And\nthen?"},
        ]
        second = model.chat(conversation, temperature=0, max_tokens=9)
    assert capsys.readouterr().out == f"{first}\n{second}\n"


def test_a_paste_is_one_message(path: Path) -> None:
    """A terminal puts marks around pasted text if it is asked to."""
    with Terminal(str(path), "-n", "3", "--temp", "0", NO_COLOR="1", TERM="xterm") as terminal:
        terminal.wait_for("\033[?2004h")
        terminal.wait_for("> ")
        terminal.type("\033[200~Tell me of Tom.\rWho is he?\033[201~")
        terminal.wait_for("Who is he?")
        terminal.type("\r")
        read = int(re.findall(r"(\d+) tokens read", terminal.wait_for(" written at ") + "x")[0])
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.close() == 0
    with halfbyte.load(path) as model:
        question = {"role": "user", "content": "Tell me of Tom.\nWho is he?"}
        assert read == len(Chat(model).encode([question]))


@pytest.mark.parametrize("way", ["chatml", "file"])
def test_a_template_of_ones_own(
    way: str, storyteller: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a model without one: ChatML by its name, or a template in a file."""
    name = "chatml"
    if way == "file":
        name = str(tmp_path / "template.jinja")
        Path(name).write_text(BUILT_IN["chatml"])
    piped(monkeypatch, "Who is Tom?\n")
    assert main(["chat", str(storyteller), "--template", name, "--temp", "0", "-n", "9"]) == 0
    with halfbyte.load(storyteller) as model:
        prompt = "<|im_start|>user\nWho is Tom?<|im_end|>\n<|im_start|>assistant\n"
        ids = Chat(model, name).encode([{"role": "user", "content": "Who is Tom?"}])
        assert ids == model.tokenizer.encode(prompt, add_special_tokens=False)
        text = "".join(
            Chat(model, name).begin(
                [{"role": "user", "content": "Who is Tom?"}], temperature=0, max_tokens=9
            )
        )
    assert capsys.readouterr().out == f"{text}\n"


def test_templates_that_are_refused(storyteller: Path, tmp_path: Path, capsys: Capture) -> None:
    bad = tmp_path / "bad.jinja"
    bad.write_text("{% for %}")
    assert main(["chat", str(storyteller), "--template", str(bad)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {bad}: ")
    bad.write_bytes(b"\xff")
    assert main(["chat", str(storyteller), "--template", str(bad)]) == 2
    assert f"{bad}: expected a chat template in UTF-8" in capsys.readouterr().err
    assert main(["chat", str(storyteller), "--template", "none"]) == 2
    assert "expected one of ['chatml'], or a file" in capsys.readouterr().err


def test_commands(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """The same question after /reset has the same answer; /system changes it; /quit ends."""
    lines = ["Tell me of Tom.", "/retry", "/reset", "Tell me of Tom.", "/system Be long and loud."]
    lines += ["Tell me of Tom.", "/set max_tokens 1", "Why?", "/help", "/quit", "Never."]
    piped(monkeypatch, "\n".join(lines))
    assert main(["chat", str(path), "--temp", "0", "-n", "12"]) == 0
    out, err = capsys.readouterr()
    with halfbyte.load(path) as model:
        user = {"role": "user", "content": "Tell me of Tom."}
        plain = model.chat([user], temperature=0, max_tokens=12)
        system = {"role": "system", "content": "Be long and loud."}
        loud = model.chat([system, user], temperature=0, max_tokens=12)
    assert plain != loud
    assert out.startswith(f"{plain}\n" * 3 + f"{loud}\n")
    assert len(out) - len(f"{plain}\n" * 3 + f"{loud}\n") < 12
    assert re.findall(r"^/\w+", err, re.MULTILINE) == [
        "/help", "/reset", "/system", "/retry", "/set", "/quit",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/set colour red", "/set colour: expected one of max_tokens, temperature"),
        ("/set top_k many", "/set top_k many: expected a number"),
        ("/retry", "/retry: there is no answer yet"),
        ("cat " * 500, "the last message and the instructions have"),
    ],
)
def test_a_line_that_cannot_be(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, line: str, expected: str
) -> None:
    piped(monkeypatch, line)
    assert main(["chat", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert expected in err
    assert err.count("\n") == 1


def test_a_hostile_template_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """One of many: test_template has them all."""
    template, expected = HOSTILE["doubling by ~"]
    path = sentencepiece(tmp_path / "m.gguf", tokenizer__chat_template=template)
    piped(monkeypatch, "hello")
    assert main(["chat", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {path}: metadata 'tokenizer.chat_template': ")
    assert expected in err
    assert err.count("\n") == 1


def test_a_model_that_holds_no_conversation(storyteller: Path, capsys: Capture) -> None:
    assert main(["chat", str(storyteller)]) == 2
    assert "continues texts but holds no conversation" in capsys.readouterr().err


class Terminal:
    """`halfbyte chat` at a terminal."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._controller, terminal = pty.openpty()
        command = [sys.executable, "-m", "halfbyte", "chat", *arguments]
        self.process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
            env=os.environ | {"TERM": "dumb"} | environment,
        )  # fmt: skip
        os.close(terminal)
        self.shown = ""

    def type(self, line: str) -> None:
        os.write(self._controller, line.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def wait_for(self, text: str, seconds: float = 60) -> str:
        """The text shown up to this one; both are removed from `shown`."""
        end = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < end, self.shown
            if select.select([self._controller], [], [], 0.1)[0]:
                self.shown += os.read(self._controller, 65536).decode()
        before, _, self.shown = self.shown.partition(text)
        return before

    def wait_for_more(self) -> None:
        """Wait until more is shown than the end of a typed line."""
        end = time.monotonic() + 60
        while not self.shown.replace("\033[?2004l", "").strip():
            assert time.monotonic() < end, self.shown
            if select.select([self._controller], [], [], 0.1)[0]:
                self.shown += os.read(self._controller, 65536).decode()

    def close(self) -> int:
        return self.process.wait(30)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()  # if a test left it running
        self.process.wait()
        os.close(self._controller)


@pytest.fixture
def slow(repository: Path, tmp_path: Path) -> Path:
    """8 million random weights."""
    tool = load_tool(repository, "make_model")
    tool.make_model(tmp_path / "random.gguf", "small", "F32")
    return sentencepiece(tmp_path / "slow.gguf", tmp_path / "random.gguf")


def test_ctrl_c_stops_the_answer_and_not_the_program(slow: Path) -> None:
    """With a slow model, on NumPy, so that there is time to stop it."""
    with Terminal(str(slow), "-n", "1000", "--backend", "numpy", NO_COLOR="1") as terminal:
        terminal.wait_for("> ")
        terminal.type("Tell me of Tom.\n")
        terminal.wait_for("Tom.\r\n")
        terminal.wait_for_more()
        terminal.interrupt()
        terminal.wait_for("Stopped.")
        assert "tokens/s" in terminal.wait_for("> ")
        time.sleep(0.5)  # until the prompt waits for a line
        terminal.interrupt()
        terminal.wait_for("Ctrl-D or /quit ends the chat.")
        terminal.type("/nonsense\n")
        terminal.wait_for("/nonsense: not a command")
        terminal.type("/set top_p 7\n")
        terminal.type("Why?\n")
        terminal.wait_for("error: top_p 7.0: expected more than 0")
        terminal.wait_for("> ")
        time.sleep(0.5)  # a Ctrl-D before it reads keys is lost
        terminal.type("\x04")
        assert terminal.close() == 0
        assert "\033[2m" not in terminal.shown


def test_colours_only_at_a_terminal(path: Path) -> None:
    with Terminal(str(path), "-n", "3") as terminal:
        assert "\033[2m" in terminal.wait_for("> ")
        terminal.type("/quit\n")
        assert terminal.close() == 0
