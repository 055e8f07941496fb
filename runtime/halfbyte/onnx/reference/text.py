"""Strings: StringConcat, StringSplit, StringNormalizer, RegexFullMatch, TfIdfVectorizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference._numbers import fitting
from halfbyte.onnx.reference._regex import Pattern
from halfbyte.onnx.reference.registry import define

Array = npt.NDArray[Any]


def texts(values: Iterable[str], shape: Sequence[int]) -> Array:
    """A tensor of strings."""
    listed = list(values)
    result = np.empty(len(listed), object)
    result[:] = listed
    return result.reshape(shape)


@define("StringConcat", since=20, infer=_shapes.together)
def string_concat(x: Array, y: Array) -> Array:
    """x + y, element by element."""
    return np.asarray(np.add(x, y), object)


@define("StringSplit", since=20, decided_by=(0,), product=True)
def string_split(
    x: Array, *, delimiter: str | None = None, maxsplit: int | None = None
) -> tuple[Array, Array]:
    """Each string's parts [*x.shape, most] ("" after the last), and their number [*x.shape].

    An empty delimiter is any run of white space.
    """
    parts = [str(s).split(delimiter or None, -1 if maxsplit is None else maxsplit) for s in x.flat]
    # An empty string has no parts, whatever the delimiter.
    parts = [part if text else [] for part, text in zip(parts, x.flat, strict=True)]
    counts = [len(part) for part in parts]
    maximum = max(counts, default=0)
    padded = [text for part in parts for text in part + [""] * (maximum - len(part))]
    return texts(padded, (*x.shape, maximum)), np.array(counts, np.int64).reshape(x.shape)


CASES: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}


@define("StringNormalizer", decided_by=(0,))
def string_normalizer(
    x: Array,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",
    stopwords: Sequence[str] = (),
) -> Array:
    """x [n] or [1, n] without its stopwords, in lower or upper case.

    Where nothing is left, the result is one empty string. Case is Unicode's, whatever the locale.
    """
    if x.ndim > 2 or (x.ndim == 2 and len(x) != 1):
        raise ProgramError(f"shape {list(x.shape)}, expected [n] or [1, n]")
    key = CASES["NONE" if is_case_sensitive else "LOWER"]
    dropped = {key(word) for word in stopwords}
    kept = [str(s) for s in x.flat if key(str(s)) not in dropped]
    kept = [CASES[case_change_action](s) for s in kept] or [""]
    return texts(kept, (*x.shape[:-1], len(kept)))


@define("RegexFullMatch", since=20, product=True, infer=_shapes.same)
def regex_full_match(x: Array, *, pattern: str) -> Array:
    """Whether the pattern (RE2's syntax) matches the whole of each string: bool, x's shape."""
    compiled = Pattern(pattern)
    matches = [compiled.full_match(str(text)) for text in x.flat]
    return np.array(matches, np.bool_).reshape(x.shape)


def _counts(x: Array, *, ngram_indexes: Sequence[int], **attributes: Any) -> _shapes.Shape:
    return (*x.shape[:-1], max(ngram_indexes, default=-1) + 1)


@define("TfIdfVectorizer", since=9, product=True, infer=_shapes.Rule(_counts))
def tf_idf_vectorizer(
    x: Array,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None,
    pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
) -> Array:
    """How often each n-gram of a pool occurs in x [n] or [batch, n]: float32 [batch, indexes].

    The pool lists all 1-grams, then all 2-grams, ...; `ngram_counts[i]` is where those of i + 1
    words begin. An n-gram may skip 0 to `max_skip_count` words between neighbours, always the same
    number. Mode TF gives counts, IDF weights of the n-grams that occur, TFIDF their product.
    """
    pool: Sequence[Any] = pool_strings if pool_strings is not None else pool_int64s or ()
    grams = _grams(pool, ngram_counts, ngram_indexes)
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    counts = np.zeros(fitting((len(rows), max(ngram_indexes, default=-1) + 1), 4), np.float32)
    for row, out in zip(rows.tolist(), counts, strict=True):
        for gram, times in _occurring(row, min_gram_length, max_gram_length, max_skip_count):
            if gram in grams:
                out[ngram_indexes[grams[gram]]] += times
    scale = np.ones(counts.shape[1], np.float32)
    if weights is not None:
        scale[list(ngram_indexes)] = weights
    if mode == "IDF":
        counts = (counts > 0).astype(np.float32)
    elif mode not in ("TF", "TFIDF"):
        raise ProgramError(f"mode {mode!r}, expected TF, IDF or TFIDF")
    result = counts if mode == "TF" else counts * scale
    return result[0] if x.ndim < 2 else result


def _grams(
    pool: Sequence[Any], starts: Sequence[int], indexes: Sequence[int]
) -> dict[tuple[Any, ...], int]:
    """Each n-gram of the pool -> its index among all."""
    grams: dict[tuple[Any, ...], int] = {}
    ends = [*starts[1:], len(pool)]
    for length, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % length:
            raise ProgramError(f"{length}-grams at {start} to {end} of a pool of {len(pool)}")
        for at in range(start, end, length):
            grams[tuple(pool[at : at + length])] = len(grams)
    if len(grams) != len(indexes) or min(indexes, default=0) < 0:
        raise ProgramError(f"{len(grams)} n-grams, {len(indexes)} indexes, expected one for each")
    return grams


def _occurring(
    row: Sequence[Any], minimum: int, maximum: int, skips: int
) -> Iterable[tuple[tuple[Any, ...], int]]:
    """n-grams of a row, and how often each occurs."""
    counted: Counter[tuple[Any, ...]] = Counter()
    for length in range(minimum, min(maximum, len(row)) + 1):
        for step in range(1, 2 if length == 1 else min(skips, len(row)) + 2):
            reach = (length - 1) * step
            counted.update(_gram(row, at, length, step) for at in range(len(row) - reach))
    return counted.items()


def _gram(row: Sequence[Any], at: int, length: int, step: int) -> tuple[Any, ...]:
    """`length` words from `at` on, each `step` after the previous one."""
    return tuple(row[at : at + (length - 1) * step + 1 : step])
