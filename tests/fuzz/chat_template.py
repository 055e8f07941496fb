"""Chat templates: words, tags and texts of good and hostile ones are exchanged."""

from __future__ import annotations

import random
import re
import tempfile
import time
from functools import cache
from pathlib import Path
from unittest import mock

from tests.fuzz.mutators import mutate_bytes
from tests.text.chat.attacks import RENDERING
from tests.text.chat.templates import HOSTILE, LONG, TEMPLATES, TOOLS
from tests.text.chat.test_template import SNIPPETS, VARIABLES

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.chat import sandbox
from halfbyte.text.chat.meter import TEXT_METHODS
from halfbyte.text.chat.template import find_template

WORK = 500_000  # units of one rendering: only some hundredths of a second
SECONDS = 3.0  # of this thread; longer renderings did work that they had not paid for
TAG = re.compile(r"(\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\})", re.DOTALL)
WORD = re.compile(r"'[^']*'|\"[^\"]*\"|[\w.]+|[^\w\s]+")
WORDS = (
    "messages", "message", "loop", "ns", "ns.x", "self", "caller()", "varargs", "kwargs", "none",
    "true", "0", "1", "-1", "1.5", "1e308", "9" * 40, "''", "'a'", "'%c'", "[]", "{}", "()", "[1]",
    "{'a': 1}", "messages[::-1]", "range(5)", "range(99999)", "namespace()", "dict()", "+", "-",
    "*", "/", "//", "%", "**", "~", "|", ".", ",", "(", ")", "[", "]", ":", "==", "<", "in", "not",
    "not in", "is", "if", "else", "and", "or", "recursive", ".__class__", "['__init__']", "loop(",
    "strftime_now", "raise_exception('no')", "tools", "x", "'a' * 99999", "[0] * 9999",
    *(f".{name}" for name in (*TEXT_METHODS, "format", "append", "items()", "cycle(1, 2)")),
    *(f"|{name}" for name in sandbox.Sandbox().filters if name.isidentifier()),
    *(f" is {name}" for name in sandbox.Sandbox().tests if name.isidentifier()),
)  # fmt: skip


@cache
def corpus() -> list[bytes]:
    """Templates of models, and of each feature that a template may use."""
    templates = [*TEMPLATES.values(), *TEMPLATES.values(), *TEMPLATES.values(), *SNIPPETS]
    return [source.encode() for source in templates]


@cache
def tags() -> list[str]:
    """Each tag of hostile templates, and each whole template."""
    hostile = [source for source, _ in HOSTILE.values()] + list(RENDERING.values())
    short = [source for source in hostile if len(source) < 2000]
    return sorted({tag for source in short for tag in TAG.findall(source)}) + short


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Insert, remove, double, move or replace a tag or a word; or change any bytes."""
    pieces = TAG.split(data.decode(errors="replace"))
    kind = chance.randrange(6)
    if kind == 0:
        return mutate_bytes(data, chance)
    at = chance.randrange(len(pieces))
    if kind == 1:
        pieces.insert(at, chance.choice(tags()))
    elif kind == 2:
        pieces[at] = chance.choice(["", 2 * pieces[at], chance.choice(pieces), "\r\n", "{", "{%"])
    else:
        inside = [at for at, piece in enumerate(pieces) if piece.startswith("{")]
        at = chance.choice(inside or [at])
        pieces[at] = _word(pieces[at], chance)
    return "".join(pieces).encode()


def _word(tag: str, chance: random.Random) -> str:
    """The tag with a word inserted, removed or replaced."""
    words = list(WORD.finditer(tag))
    if not words:
        return tag + chance.choice(WORDS)
    start, end = chance.choice(words).span()
    way = chance.randrange(4)
    if way == 0:
        return tag[:start] + tag[end:]
    if way == 1:
        return tag[:end] + chance.choice(WORDS) + tag[end:]
    other = chance.choice(WORDS) if way == 2 else chance.choice(words)[0]
    return tag[:start] + other + tag[end:]


def target(data: bytes) -> None:
    """Render a conversation with a template in a file."""
    start = time.thread_time()
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(sandbox, "WORK", WORK):
        path = Path(folder, "template.jinja")
        path.write_bytes(data)
        try:
            template = find_template(ModelFile(path, "none", {}, {}), str(path))
            template.render(LONG, tools=TOOLS, **VARIABLES)
        finally:
            if (seconds := time.thread_time() - start) > SECONDS:
                raise AssertionError(f"{seconds:.1f} seconds")
