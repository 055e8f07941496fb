"""The tokens that spell a word with the highest sum of scores, by the Viterbi algorithm."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from halfbyte.text.tokenizers.prefixes import Prefixes

_UNKNOWN_PENALTY = 10.0
_MANY = 32  # lengths of tokens with the same beginning; more are weighed all at once

Step = tuple[int | None, int, int]  # token id (None: an unknown character) and its span


class Viterbi:
    """Finds the best tokens of words; of equal sums the one whose last token is the longest.

    Parameters
    ----------
    tokens : dict
        Id and score of each token. An unknown character scores ten less than the worst.
    worst : float, optional
        The worst score, if it is not the least of these.
    narrow : bool
        Keep sums in float32, as `sentencepiece` does.
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
        groups: dict[str, list[str]] = {}  # by their first two characters
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

    def __call__(self, word: str) -> list[Step]:
        """The tokens of a word, in order."""
        size = len(word)
        best = array(self._kind, [float("-inf")]) * (size + 1)  # the sum up to each place
        best[0] = 0.0
        last = array("q", [-1]) * (size + 1)  # the best token that ends there
        begins = array("q", [0]) * (size + 1)  # where that token begins
        tokens, chains = self._tokens.get, self._chains
        sum_ = array(self._kind, [0.0])  # rounds the sums stored in it
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
                entry = tokens(word[start:end]) if end <= size else None
                if entry is not None:
                    sum_[0] = so_far + entry[1]
                    total = sum_[0]
                    if total > best[end]:
                        best[end], last[end], begins[end] = total, entry[0], start
        path: list[Step] = []
        end = size
        while end:
            path.append((last[end] if last[end] >= 0 else None, begins[end], end))
            end = begins[end]
        return path[::-1]


class _Chains:
    """Tokens of many lengths with the same beginning, weighed in one step.

    Each place of a text takes one look-up by bisection, and as many sums in NumPy as there are
    tokens in a chain, each of which begins with the one before. A chain serves all its prefixes.
    """

    def __init__(self, tokens: dict[str, tuple[int, float]]) -> None:
        self._tokens = tokens
        self._prefixes = Prefixes(tokens)
        self._shorter: dict[str, str] = {}  # the longest token that a token begins with
        self._counts: dict[str, int] = {}  # how many tokens a token begins with, itself included
        chain: list[str] = []  # each begins with the one before
        for token in sorted(tokens):
            while chain and not token.startswith(chain[-1]):
                chain.pop()
            self._shorter[token] = chain[-1] if chain else ""
            chain.append(token)
            self._counts[token] = len(chain)
        self._whole: dict[str, str] = {}  # the last token of a chain that a token is in
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
        """Lengths and ids, and scores, of the tokens up to one in its chain."""
        whole, count = self._whole[token], self._counts[token]
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
