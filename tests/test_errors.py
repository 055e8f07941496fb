"""Errors: whatever text a file puts into a message, it is one printable line."""

from __future__ import annotations

import random

import pytest

from halfbyte.download.transfer import DownloadError
from halfbyte.errors import HalfbyteError, printable
from halfbyte.onnx.session import errors as session_errors

KINDS = ("\n", "\r", "\x1b[2J", "\x00", "\x7f", "\x9b31m", "\u2028", "\u202e", "\u200b", "\ufeff")
LONE = "\ud800"


def kinds(base: type[HalfbyteError] = HalfbyteError) -> list[type[HalfbyteError]]:
    """A class and all of its subclasses."""
    assert DownloadError in HalfbyteError.__subclasses__()
    return [base, *(kind for subclass in base.__subclasses__() for kind in kinds(subclass))]


def junk(draw: random.Random) -> str:
    """A text that a file may contain."""
    few = [chr(draw.randrange(0x110000)) for _ in range(draw.randrange(1, 40))]
    return "".join(draw.choice([*few, *KINDS, LONE, "a"]) for _ in range(draw.choice((9, 2500))))


@pytest.mark.parametrize("seed", range(100))
def test_every_message_is_one_printable_line(seed: int) -> None:
    draw = random.Random(seed)
    for kind in kinds():
        text = junk(draw)
        message = str(kind(f"model.gguf: tensor {text}: expected 3"))
        assert message.isprintable(), (kind, text)
        assert len(message) < 2000
        assert message.startswith("model.gguf: tensor ")
        assert message.endswith(": expected 3")
        assert str(kind(message)) == message


@pytest.mark.parametrize("text", [*KINDS, LONE])
def test_what_does_not_print_is_escaped(text: str) -> None:
    assert str(HalfbyteError(f"a{text}b")) == f"a{repr(text)[1:-1]}b"


def test_what_prints_stays_as_it_is() -> None:
    text = "modèle 模型.gguf: 'token_embd.weight' \\n 😀"
    assert str(HalfbyteError(text)) == text


@pytest.mark.parametrize("limit", [20, 80, 1999])
def test_a_long_text_keeps_its_beginning_and_its_end(limit: int) -> None:
    text = printable("begin" + "\x1b" * 5000 + "end", limit)
    assert len(text) <= limit
    assert text.startswith("begin")
    assert text.endswith("end")


def test_the_errors_of_a_session_are_among_them() -> None:
    every = set(kinds())
    assert {*session_errors.ALL, session_errors.TypeProblem} <= every
    assert str(session_errors.translated(HalfbyteError("a\nb"))) == "a\\nb"
    assert str(session_errors.ValueProblem("a\x1bb")) == "a\\x1bb"
