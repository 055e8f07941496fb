"""SentencePiece's unigram model: the tokenizer that GGUF calls "t5".

Of all ways to make a word of tokens the one with the highest sum of scores is taken, found by the
algorithm of Viterbi. A character that is no token counts ten less than the worst token; it becomes
byte tokens where there are some, or else unknown. A user-defined token counts so much that it is
nearly always taken.
"""

from __future__ import annotations

from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.tokens import NORMAL
from halfbyte.tokenizers.base import Piece
from halfbyte.tokenizers.sentencepiece import SentencePieceBase

_UNKNOWN_PENALTY = 10.0


class UnigramTokenizer(SentencePieceBase):
    """See the module; made from metadata."""

    kind = "t5"
    add_eos = True

    def __init__(self, file: ModelFile) -> None:
        super().__init__(file)
        scores = self.vocabulary.scores
        normal = self.vocabulary.of_type(NORMAL)
        self._tokens = {token: (i, scores[i]) for token, i in normal.items()}
        worst = min((score for _, score in self._tokens.values()), default=0.0)
        for token, i in self._user_ids.items():
            self._tokens[token] = i, 0.0
        self._unknown_score = worst - _UNKNOWN_PENALTY
        lengths: dict[str, set[int]] = {}  # of tokens that begin with these two characters
        for token in self._tokens:
            if len(token) > 1:
                lengths.setdefault(token[:2], set()).add(len(token))
        self._lengths = {start: sorted(found) for start, found in lengths.items()}

    def _words(self, text: str) -> list[str]:
        return self._plain_words(text)

    def _pieces(self, word: str) -> list[Piece]:
        size = len(word)
        best = [0.0] + [float("-inf")] * size  # the sum up to a place
        last: list[tuple[int | None, int]] = [(None, 0)] * (size + 1)  # token, and where it begins
        tokens, unknown = self._tokens.get, (None, self._unknown_score)
        for start in range(size):
            so_far = best[start]
            token, score = tokens(word[start], unknown)
            if so_far + score > best[start + 1]:
                best[start + 1], last[start + 1] = so_far + score, (token, start)
            for length in self._lengths.get(word[start : start + 2], ()):
                end = start + length
                found = tokens(word[start:end]) if end <= size else None
                if found is not None and so_far + found[1] > best[end]:
                    best[end], last[end] = so_far + found[1], (found[0], start)
        return self._trace_back(word, last)

    def _trace_back(self, word: str, last: list[tuple[int | None, int]]) -> list[Piece]:
        found: list[Piece] = []
        end = len(word)
        while end:
            token, start = last[end]
            if token is None:
                found += reversed(self._unknown_piece(word[start:end], start))
            else:
                found.append((token, start, end))
            end = start
        return found[::-1]
