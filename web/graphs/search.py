"""Search by meaning: the passages of a text whose vectors are nearest to a question's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from halfbyte.errors import HalfbyteError
from halfbyte.web.graphs.encoder import Encoder, F32Array
from halfbyte.web.graphs.gguf_encoder import GgufEncoder
from halfbyte.web.graphs.passages import Span, passages

MAX_CHARACTERS = 1_000_000
MAX_PASSAGES = 5000
BEST = 5  # hits in an answer

Progress = Callable[[int, int], bool]  # (passages done, total) -> whether to continue


class Search:
    """Searches one text with an encoder."""

    def __init__(self, encoder: Encoder | GgufEncoder) -> None:
        self.encoder = encoder
        self._known: tuple[str, str] | None = None  # whose passages have vectors; see `knows`
        self._vectors: F32Array = np.zeros((0, 0), np.float32)

    def knows(self, text: str, prompt: str = "") -> bool:
        """Whether this text was read, with this prompt before each passage."""
        return self._known == (text, prompt)

    async def read(self, text: str, progress: Progress, prompt: str = "") -> dict[str, Any] | None:
        """Embed a text's passages; returns facts for the page, or None if it was stopped.

        `pieces` alternates between white space and passages, beginning and ending with white
        space; joined, they are the text.

        Raises
        ------
        HalfbyteError
            The text is empty or too long.
        """
        spans = self._checked(text)
        parts = [prompt + text[start:end] for start, end in spans]
        stopped = False

        def report(done: int) -> bool:
            nonlocal stopped
            stopped = not progress(done, len(parts)) and done < len(parts)
            return not stopped

        progress(0, len(parts))
        embedded = await self.encoder.embed(parts, report)
        if stopped:
            return None
        cut = self.encoder.cut
        self._known, self._vectors = (text, prompt), embedded.vectors
        return {
            "pieces": _pieces(text, spans),
            "passages": len(spans),
            "seconds": embedded.seconds,
            "each": embedded.each or embedded.seconds / len(spans),
            "cut": cut,
            "width": embedded.vectors.shape[1],
        }

    async def find(self, question: str, prompt: str = "") -> dict[str, Any]:
        """The passages nearest to a question, by the cosine of their vectors."""
        if not question.strip():
            raise HalfbyteError("Write what you are looking for.")
        embedded = await self.encoder.embed([prompt + question], lambda done: True)
        if embedded.each is None:  # this run built its program: time another
            embedded = await self.encoder.embed([prompt + question], lambda done: True)
        scores = self._vectors @ embedded.vectors[0]
        order = np.argsort(-scores, kind="stable")[:BEST]
        hits = [{"passage": int(i), "score": round(float(scores[i]), 4)} for i in order]
        return {"question": question, "hits": hits, "seconds": embedded.each}

    @staticmethod
    def _checked(text: str) -> list[Span]:
        if len(text) > MAX_CHARACTERS:
            raise HalfbyteError(
                f"The text has {len(text):,} characters: expected at most {MAX_CHARACTERS:,}."
            )
        spans = passages(text)
        if not spans:
            raise HalfbyteError("There is no text to search: paste one.")
        if len(spans) > MAX_PASSAGES:
            raise HalfbyteError(
                f"The text has {len(spans):,} passages: expected at most {MAX_PASSAGES:,}."
            )
        return spans


def _pieces(text: str, spans: list[Span]) -> list[str]:
    pieces, at = [], 0
    for start, end in spans:
        pieces += [text[at:start], text[start:end]]
        at = end
    return [*pieces, text[at:]]
