"""``halfbyte chat``: a conversation at a terminal, or from a pipe."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

from halfbyte.cli.common import (
    add_execution,
    add_generation,
    command,
    generation_options,
    harmless,
    has_colours,
    load_model,
)
from halfbyte.cli.pace import Pace, add_pace, check_pace
from halfbyte.cli.parser import Commands, Parser
from halfbyte.cli.run import add_template
from halfbyte.errors import HalfbyteError
from halfbyte.text.chat import Chat, recommended_temperature
from halfbyte.text.chat.conversation import MAX_TOKENS
from halfbyte.text.generate import Generation, Options

_QUOTES = '"""'
_NUMBERS: dict[str, Callable[[str], int | float]] = {
    "max_tokens": int, "temperature": float, "top_k": int, "top_p": float, "min_p": float,
    "repetition_penalty": float, "frequency_penalty": float, "presence_penalty": float, "seed": int,
}  # fmt: skip


def add_chat(commands: Commands[Parser]) -> None:
    """The command `chat`."""
    parser = command(
        commands, "chat", _chat, "talk with a model that has a chat template",
        'halfbyte chat smollm2-135m-instruct.gguf --system "Answer in one sentence."',
        "halfbyte chat model.gguf --template chatml -n 100",
        "halfbyte chat model.gguf --pace  # the speed that a phone keeps for an hour",
        "printf 'Who are you?\\nSince when?\\n' | halfbyte chat model.gguf --temp 0",
    )  # fmt: skip
    parser.description = (
        "Talk with a model that has a chat template. At a terminal, Ctrl-C stops an answer, Ctrl-D "
        'ends the chat, /help lists commands. A message of several lines begins and ends with """, '
        "or all its lines except the last end with a backslash. From a pipe, each line is a "
        "message, and only answers are printed. Without --temp, the temperature is that which the "
        "model's file recommends, if it does."
    )
    parser.add_argument("--system", metavar="TEXT", help="instructions for the whole conversation")
    add_template(parser)
    add_generation(parser, MAX_TOKENS)
    add_pace(parser)
    add_execution(parser)


def _chat(options: argparse.Namespace) -> int:
    check_pace(options)
    with load_model(options) as model:
        chat = Chat(model, options.template)
        settings = generation_options(options)
        if (temperature := recommended_temperature(model.file)) is not None:
            settings.setdefault("temperature", temperature)
        Session(chat, settings, options.system, Pace(options, model)).run()
    return 0


def messages(read: Callable[[str], str | None]) -> Iterator[str]:
    """Messages of one line, or of several: in triple quotes, or with backslashes at the ends.

    `read` takes a prompt and returns a line, or None to discard the message, and raises `EOFError`
    at the end.
    """
    held: list[str] = []
    is_quoted = False
    while True:
        try:
            line = read("... " if held else "> ")
        except EOFError:
            if held:
                yield "\n".join(held)
            return
        if line is None:
            held, is_quoted = [], False
            continue
        if not held and line.startswith(_QUOTES):
            line, is_quoted = line.removeprefix(_QUOTES), True
        if is_quoted and line.rstrip().endswith(_QUOTES):
            yield "\n".join([*held, line.rstrip().removesuffix(_QUOTES)]).strip("\n")
        elif is_quoted or line.endswith("\\"):
            held.append(line if is_quoted else line.removesuffix("\\"))
            continue
        else:
            yield "\n".join([*held, line])
        held, is_quoted = [], False


class Session:
    """One conversation: reads lines, writes answers to stdout and notes to stderr."""

    def __init__(
        self, chat: Chat, options: Options, system: str | None = None, pace: Pace | None = None
    ) -> None:
        self._pace = pace
        self._chat, self._options, self._system = chat, options, system
        self._messages: list[dict[str, str]] = []
        self._interactive = sys.stdin.isatty()
        self._colours = has_colours(sys.stderr)
        self._commands: dict[str, tuple[Callable[[str], None], str]] = {
            "/help": (self._help, "this list"),
            "/reset": (self._reset, "start over, with the same instructions"),
            "/system": (self._set_system, "TEXT: start over, with these instructions"),
            "/retry": (self._retry, "generate another answer to the last message"),
            "/set": (self._set, "NAME VALUE: change an option, e.g. temperature 0.2"),
            "/quit": (self._quit, "end the chat, like Ctrl-D"),
        }
        self._reset("")

    def run(self) -> None:
        """Talk until the input ends."""
        # a bad template is refused before the first message
        self._chat.encode([*self._messages, {"role": "user", "content": "."}])
        self._note("/help lists commands; Ctrl-C stops an answer, Ctrl-D ends the chat.")
        if self._interactive:
            with suppress(ImportError):
                import readline  # gives input() editing and a history

                readline.parse_and_bind("set enable-bracketed-paste on")  # paste lines at once
        elif hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(encoding="utf-8", errors="replace")
        with suppress(EOFError):
            for message in messages(self._line if self._interactive else _piped_line):
                self._take(message)

    def _line(self, prompt: str) -> str | None:
        """A line typed at the terminal; None for Ctrl-C."""
        try:
            return input(prompt)
        except KeyboardInterrupt:
            print()
            self._note("Ctrl-D or /quit ends the chat.")
            return None

    def _take(self, line: str) -> None:
        if not line.strip():
            return
        word, _, rest = line.strip().partition(" ")
        try:
            if word in self._commands:
                self._commands[word][0](rest.strip())
            elif word.startswith("/") and self._interactive:
                print(f"{word}: not a command; /help lists them", file=sys.stderr)
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
            for piece in generation if self._pace is None else self._pace(generation):
                sys.stdout.write(harmless(piece))
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
            limit = {"length": "the maximum number of tokens", "context": "the end of the context"}
            self._note(f"The answer was cut at {limit[generation.finish_reason]}.")
        fed = len(generation.prompt_ids) - generation.reused
        self._note(
            f"{fed} tokens read, {len(generation.ids)} written at "
            f"{generation.decode_speed:.0f} tokens/s"
        )
        if self._pace is not None and self._pace.note:
            self._note(self._pace.note)

    def _note(self, text: str) -> None:
        """Print a note about the conversation, only at a terminal."""
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
            raise HalfbyteError("/retry: there is no answer yet")
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


def _piped_line(_: str) -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")
