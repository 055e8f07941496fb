"""The code blocks of Markdown pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block; `output` is the `text` block directly after it, which it prints."""

    page: str
    line: int
    language: str
    text: str
    output: str | None

    @property
    def place(self) -> str:
        """Page and line, for messages."""
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block; continued lines are joined."""
        joined = self.text.replace("\\\n", " ")
        return [line for line in joined.splitlines() if line and not line.startswith("#")]


def blocks_of(page: str, markdown: str) -> Iterator[Block]:
    """All blocks of a page in their order, with the output blocks that follow them."""
    matches = list(FENCE.finditer(markdown))
    while matches:
        match = matches.pop(0)
        language, text = match.groups()
        output = None
        if language != "text" and matches and matches[0][1] == "text":
            between = markdown[match.end() : matches[0].start()]
            output = None if between.strip() else matches.pop(0)[2]
        yield Block(page, markdown.count("\n", 0, match.start()) + 1, language, text, output)


def read_blocks(repository: Path, page: str) -> list[Block]:
    """The blocks of a file of the repository."""
    return list(blocks_of(page, (repository / page).read_text(encoding="utf-8")))
