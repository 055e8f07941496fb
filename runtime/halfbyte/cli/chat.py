"""``halfbyte chat``: a conversation at a terminal, or from a pipe."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

from halfbyte.chat import Chat
from halfbyte.chat.conversation import MAX_TOKENS
from halfbyte.cli.shared import (
    Commands,
    add_execution,
    add_generation,
    command,
    generation_options,
    load_model,
)
from halfbyte.errors import HalfbyteError
from halfbyte.generate import Generation, Options

# What a model writes must not steer the terminal.
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_NUMBERS: dict[str, Callable[[str], int | float]] = {
    "max_tokens": int, "temperature": float, "top_k": int, "top_p": float, "min_p": float,
    "repetition_penalty": float, "frequency_penalty": float, "presence_penalty": float, "seed": int,
}  # fmt: skip


def add_chat(commands: Commands[argparse.ArgumentParser]) -> None:
    """The command `chat`."""
    parser = command(
        commands, "chat", _chat, "talk with a model that has a chat template",
        'halfbyte chat smollm2-135m-instruct.gguf --system "Answer in one sentence."',
    )  # fmt: skip
    parser.description = (
        "Talk with a model that has a chat template. At a terminal, Ctrl-C stops an answer, Ctrl-D "
        "ends, /help lists commands. From a pipe each line is a message; only answers are printed."
    )
    parser.add_argument("--system", metavar="TEXT", help="instructions that stay throughout")
    parser.add_argument(
        "--template", metavar="NAME", help="another of the model's templates than the usual one"
    )
    add_generation(parser)
    parser.set_defaults(n=MAX_TOKENS)
    add_execution(parser)


def _chat(options: argparse.Namespace) -> int:
    with load_model(options) as model:
        chat = Chat(model, options.template)
        Session(chat, generation_options(options), options.system).run()
    return 0


class Session:
    """One conversation: lines come in, answers go to stdout, what is said about them to stderr."""

    def __init__(self, chat: Chat, options: Options, system: str | None = None) -> None:
        self._chat, self._options, self._system = chat, options, system
        self._messages: list[dict[str, str]] = []
        self._interactive = sys.stdin.isatty()
        self._terminal = sys.stdout.isatty()
        self._colours = self._terminal and "NO_COLOR" not in os.environ
        self._commands: dict[str, tuple[Callable[[str], None], str]] = {
            "/help": (self._help, "this list"),
            "/reset": (self._reset, "begin anew, with the same instructions"),
            "/system": (self._set_system, "TEXT: begin anew, with these instructions"),
            "/retry": (self._retry, "another answer to the last message"),
            "/set": (self._set, "NAME VALUE: how answers are generated, e.g. temperature 0.2"),
            "/quit": (self._quit, "end, as Ctrl-D does"),
        }
        self._reset("")

    def run(self) -> None:
        """Until the input ends."""
        self._chat.encode([*self._messages, {"role": "user", "content": "."}])  # a bad template
        self._note("/help lists commands; Ctrl-C stops an answer, Ctrl-D ends.")
        with suppress(EOFError):
            for line in self._lines():
                self._take(line)

    def _lines(self) -> Iterator[str]:
        if not self._interactive:
            if hasattr(sys.stdin, "reconfigure"):
                sys.stdin.reconfigure(encoding="utf-8", errors="replace")
            yield from (line.rstrip("\r\n") for line in sys.stdin)
            return
        with suppress(ImportError):
            import readline  # noqa: F401 - input() then edits lines and remembers them
        while True:
            try:
                yield input("> ")
            except KeyboardInterrupt:
                print()
                self._note("Ctrl-D or /quit ends.")

    def _take(self, line: str) -> None:
        if not line.strip():
            return
        word, _, rest = line.strip().partition(" ")
        try:
            if word in self._commands:
                self._commands[word][0](rest.strip())
            elif word.startswith("/") and self._interactive:
                print(f"{word}: is no command; /help lists them", file=sys.stderr)
            else:
                self._ask(line)
        except HalfbyteError as error:
            if not self._interactive:
                raise
            print(f"error: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            if not self._interactive:
                raise
            self._note("Stopped.")

    def _ask(self, content: str) -> None:
        self._messages.append({"role": "user", "content": content})
        try:
            dropped = self._chat.dropped
            generation = self._chat.begin(self._messages, **self._options)
        except BaseException:
            self._messages.pop()
            raise
        if self._chat.dropped > dropped:
            self._note(f"The oldest {self._chat.dropped} messages no longer fit the context.")
        self._answer(generation)
        self._messages.append({"role": "assistant", "content": generation.text})

    def _answer(self, generation: Generation) -> None:
        stopped = False
        try:
            for piece in generation:
                sys.stdout.write(piece.translate(_CONTROLS) if self._terminal else piece)
                sys.stdout.flush()
        except KeyboardInterrupt:
            if not self._interactive:
                raise
            stopped = True
        finally:
            sys.stdout.write("\n")
            sys.stdout.flush()
        if stopped:
            self._note("Stopped.")
        elif generation.finish_reason in ("length", "context"):
            what = {"length": "the most tokens asked for", "context": "the end of the context"}
            self._note(f"The answer was cut at {what[generation.finish_reason]}.")
        fed = len(generation.prompt_ids) - generation.reused
        self._note(
            f"{fed} tokens read, {len(generation.ids)} written at "
            f"{generation.decode_speed:.0f} tokens/s"
        )

    def _note(self, text: str) -> None:
        """Something about the conversation, for people alone."""
        if self._interactive:
            print(f"\033[2m{text}\033[0m" if self._colours else text, file=sys.stderr)

    def _help(self, _: str) -> None:
        for name, entry in self._commands.items():
            print(f"{name:<10}{entry[1]}", file=sys.stderr)

    def _reset(self, _: str) -> None:
        self._messages = [{"role": "system", "content": self._system}] if self._system else []

    def _set_system(self, text: str) -> None:
        self._system = text
        self._reset("")

    def _retry(self, _: str) -> None:
        if not self._messages or self._messages[-1]["role"] != "assistant":
            raise HalfbyteError("/retry: nothing was answered yet")
        self._messages.pop()
        self._ask(self._messages.pop()["content"])

    def _set(self, text: str) -> None:
        name, _, value = text.partition(" ")
        if name not in _NUMBERS:
            raise HalfbyteError(f"/set {name}: expected one of {', '.join(_NUMBERS)}")
        try:
            self._options[name] = _NUMBERS[name](value)  # type: ignore[literal-required]
        except ValueError:
            raise HalfbyteError(f"/set {name} {value}: expected a number") from None

    def _quit(self, _: str) -> None:
        raise EOFError
