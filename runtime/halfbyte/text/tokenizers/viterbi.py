"""The best way to make a word of tokens: the one with the highest sum of scores."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from halfbyte.text.tokenizers.prefixes import Prefixes

_UNKNOWN_PENALTY = 10.0
_MANY = 32  # lengths of tokens that begin alike, from which on they are looked up all at once

Found = tuple[int | None, int, int]  # token id, None for an unknown character, and its span


class Viterbi:
    """Finds it by the algorithm of Viterbi; of equal sums the one whose last token is the longest.

    Parameters
    ----------
    tokens : dict
        Id and score of each token. An unknown character counts ten less than the worst.
    worst : float, optional
        The worst score, where it is not that of one of these.
    narrow : bool
        Sums are kept as float32, as `sentencepiece` does.
    """

    def __init__(
        self,
        tokens: dict[str, tuple[int, float]],
        worst: float | None = None,
        narrow: bool = False,
    ) -> None:
        self._tokens = tokens
        self._kind = "f" if narrow else "d"
        if worst is None:
            worst = min((score for _, score in tokens.values()), default=0.0)
        self._unknown = -1, worst - _UNKNOWN_PENALTY
        groups: dict[str, list[str]] = {}  # tokens that begin with these two characters
        for token in tokens:
            if len(token) > 1:
                groups.setdefault(token[:2], []).append(token)
        self._lengths: dict[str, list[int]] = {}
        self._chains: dict[str, _Chains] = {}
        for start, group in groups.items():
            lengths = sorted({len(token) for token in group})
            if len(lengths) > _MANY:
                self._chains[start] = _Chains({token: tokens[token] for token in group})
            else:
                self._lengths[start] = lengths

    def __call__(self, word: str) -> list[Found]:
        """The tokens of a word, in order."""
        size = len(word)
        best = array(self._kind, [float("-inf")]) * (size + 1)  # the sum up to a place
        best[0] = 0.0
        last = array("q", [-1]) * (size + 1)  # the token that ends there, and where it begins
        begins = array("q", [0]) * (size + 1)
        tokens, chains = self._tokens.get, self._chains
        sum_ = array(self._kind, [0.0])  # rounds what is put into it
        for start in range(size):
            so_far = best[start]
            token, score = tokens(word[start], self._unknown)
            sum_[0] = so_far + score
            total = sum_[0]
            if total > best[start + 1]:
                best[start + 1], last[start + 1], begins[start + 1] = total, token, start
            two = word[start : start + 2]
            if two in chains:
                chains[two].relax(word, start, best, last, begins)
            for length in self._lengths.get(two, ()):
                end = start + length
                found = tokens(word[start:end]) if end <= size else None
                if found is not None:
                    sum_[0] = so_far + found[1]
                    total = sum_[0]
                    if total > best[end]:
                        best[end], last[end], begins[end] = total, found[0], start
        way: list[Found] = []
        end = size
        while end:
            way.append((last[end] if last[end] >= 0 else None, begins[end], end))
            end = begins[end]
        return way[::-1]


class _Chains:
    """Tokens that begin alike and have many lengths: all that fit are weighed in one step.

    A place takes one look-up by bisection and as many sums in NumPy as tokens begin with each
    other, so a text of n characters n times those; a chain is made once for all its beginnings.
    """

    def __init__(self, tokens: dict[str, tuple[int, float]]) -> None:
        self._tokens = tokens
        self._prefixes = Prefixes(tokens)
        self._shorter: dict[str, str] = {}  # the longest token that a token begins with
        self._places: dict[str, int] = {}  # how many tokens a token begins with, and itself
        ordered: list[str] = []  # each begins with the one before
        for token in sorted(tokens):
            while ordered and not token.startswith(ordered[-1]):
                ordered.pop()
            self._shorter[token] = ordered[-1] if ordered else ""
            ordered.append(token)
            self._places[token] = len(ordered)
        self._whole: dict[str, str] = {}  # a token that begins with a token, and that none does
        for token in sorted(tokens, reverse=True):
            self._whole.setdefault(token, token)
            if shorter := self._shorter[token]:
                self._whole[shorter] = self._whole[token]
        self._cached: dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]] = {}

    def relax(
        self, word: str, start: int, best: array[float], last: array[int], begins: array[int]
    ) -> None:
        """Weigh the tokens that begin at a place."""
        longest = self._prefixes.longest(word, start)
        if not longest:
            return
        numbers, scores = self._chain(longest)
        ends = numbers[0] + start
        known = np.frombuffer(best, best.typecode)
        sums = (scores + best[start]).astype(known.dtype)
        better = sums > known[ends]
        ends = ends[better]
        known[ends] = sums[better]
        np.frombuffer(last, np.int64)[ends] = numbers[1, better]
        np.frombuffer(begins, np.int64)[ends] = start

    def _chain(self, token: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Lengths and ids, and scores, of a token and of all that it begins with."""
        whole, count = self._whole[token], self._places[token]
        if whole not in self._cached:
            chain = []
            at = whole
            while at:
                chain.append((len(at), *self._tokens[at]))
                at = self._shorter[at]
            lengths, ids, scores = zip(*chain[::-1], strict=True)
            self._cached[whole] = np.array([lengths, ids], np.int64), np.array(scores, np.float64)
        numbers, sums = self._cached[whole]
        return numbers[:, :count], sums[:count]
