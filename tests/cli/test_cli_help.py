"""Help: every option has an example and shows its default, and every example is parsed."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.blocks import read_blocks

from halfbyte.cli.commands import make_parser
from halfbyte.cli.prompts import take_remaining
from halfbyte.cli.quantize_command import make_parser as make_quantize_parser

Parsers = dict[str, argparse.ArgumentParser]


def parts(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """A parser with its name, and those of its commands."""
    yield parser.prog, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, part in action.choices.items():
                if name != "quantize":
                    yield from parts(part)


PARSERS: Parsers = {"quantize": make_quantize_parser(), **dict(parts(make_parser()))}


def commands(lines: str) -> Iterator[list[str]]:
    """The words of the commands in a text, also those after pipes, without comments."""
    for line in lines.splitlines():
        match = re.fullmatch(r" {4,}(?:\$ )?(?:[^|]* \| )?((?:halfbyte|quantize) .*)", line)
        if match:
            text = re.split(r"  +#? ?|;", match[1])[0] if "  " in match[1] else match[1]
            yield shlex.split(text, comments=True)


def shown(repository: Path) -> list[list[str]]:
    """All examples in help texts and in documents."""
    texts = [
        "\n".join(f"    {example}" for example in getattr(parser, "examples", ()))
        for parser in PARSERS.values()
    ]
    names = ["README.md", *(f"docs/{name}.md" for name in ("guide", "device", "browser"))]
    for name in names:
        shell = [block for block in read_blocks(repository, name) if block.language == "sh"]
        texts += [f"    {command}" for block in shell for command in block.commands]
    return [words for text in texts for words in commands(text)]


def name_of(words: list[str]) -> str:
    """The name of the parser for these words."""
    names = [" ".join(words[:count]) for count in (3, 2, 1)]
    return next(name for name in names if name in PARSERS)


def test_every_example_is_parsed(repository: Path) -> None:
    examples = shown(repository)
    assert len(examples) > 120
    top = PARSERS["halfbyte"]
    for words in examples:
        if words[0] == "halfbyte" and words[1:2] == ["quantize"]:
            words = words[1:]
        if "--help" in words or "--version" in words:
            continue
        if words[0] == "quantize":
            PARSERS["quantize"].parse_args(words[1:])
            continue
        options, more = top.parse_known_args(words[1:])
        take_remaining(words[1], options, more)


def options_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if action.option_strings and action.dest not in ("help", "debug"):
            yield action


def test_every_option_has_an_example(repository: Path) -> None:
    """The example is of this command, or of another with the same option."""
    shows: dict[str, set[str]] = {name: set() for name in PARSERS}
    for words in shown(repository):
        shows[name_of(words)].update(word.partition("=")[0] for word in words)
    meanings = {
        (option, action.help)
        for name, parser in PARSERS.items()
        for action in options_of(parser)
        for option in action.option_strings
        if option in shows[name]
    }
    missing = [
        f"{name} {action.option_strings}"
        for name, parser in PARSERS.items()
        for action in options_of(parser)
        if not any((option, action.help) in meanings for option in action.option_strings)
    ]
    assert missing == []


def test_every_option_is_explained_with_its_default() -> None:
    for name, parser in PARSERS.items():
        formatter = parser._get_formatter()
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                continue
            assert action.help, (name, action.dest)
            if action.default not in (None, False, [], (), "", argparse.SUPPRESS):
                said = formatter._expand_help(action)
                assert "default" in said, (name, action.dest, said)


@pytest.mark.parametrize("name", PARSERS)
def test_help_fits_a_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = PARSERS[name].format_help()
    assert max(map(len, text.splitlines())) <= 100
    assert text.isascii()
