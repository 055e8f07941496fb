"""The models of tokenizer.json: from a word to tokens and their spans in the word."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.json_file import field, optional
from halfbyte.text.tokenizers.merging import merge
from halfbyte.text.tokenizers.viterbi import Step, Viterbi
from halfbyte.text.tokenizers.wordpiece import longest_matches

Piece = tuple[int, int, int]  # token id, and its span
Model = Callable[[str], list[Piece]]
_LONGEST_WORD = 1 << 8  # characters; WordPiece takes quadratic time


def make_model(
    path: Path, options: dict[str, Any], ids: dict[str, int], merges: list[tuple[str, str]],
    scores: list[float],
) -> Model:  # fmt: skip
    """The model of a pipeline; raises `FormatError` and `UnsupportedError`.

    Parameters
    ----------
    options
        The model's fields, without vocabulary and merges.
    ids
        The vocabulary, without tokens that were only added.
    """
    kind = field(path, options, "type", str, "model.")
    unknown = options.get("unk_token")
    number = ids.get(unknown) if isinstance(unknown, str) else None
    if kind == "Unigram":
        return _unigram(path, options, ids, scores)
    if kind == "BPE":
        return _bpe(path, options, ids, merges, number)
    if number is None:
        raise FormatError(f"{path}: 'model.unk_token': {str(unknown)[:40]!r} is not a token")
    if kind == "WordLevel":
        return lambda word: [(ids.get(word, number), 0, len(word))]
    if kind == "WordPiece":
        return _word_piece(path, options, ids, number)
    raise UnsupportedError(f"{path}: expected a known model, found {kind[:40]!r}")


def _word_piece(path: Path, options: dict[str, Any], ids: dict[str, int], unknown: int) -> Model:
    """See `longest_matches`."""
    limit = optional(path, options, "max_input_chars_per_word", 100, int, "model.")
    prefix = optional(path, options, "continuing_subword_prefix", "##", str, "model.")
    if limit > _LONGEST_WORD:
        raise UnsupportedError(
            f"{path}: 'model.max_input_chars_per_word': {limit}, expected at most {_LONGEST_WORD}"
        )
    rest = {token.removeprefix(prefix): i for token, i in ids.items() if token.startswith(prefix)}
    longest = max(map(len, ids))

    def tokens(word: str) -> list[Piece]:
        pieces = longest_matches(word, ids, rest, longest) if len(word) <= limit else []
        return pieces or [(unknown, 0, len(word))]

    return tokens


def _unigram(
    path: Path, options: dict[str, Any], ids: dict[str, int], scores: list[float]
) -> Model:
    unknown = (
        None if options.get("unk_id") is None else field(path, options, "unk_id", int, "model.")
    )
    fallback = optional(path, options, "byte_fallback", False, bool, "model.")
    if unknown is not None and unknown not in ids.values():
        raise FormatError(f"{path}: 'model.unk_id': {unknown} is not a token")
    if not ids:
        raise FormatError(f"{path}: 'model.vocab': is empty")
    viterbi = Viterbi({token: (i, scores[i]) for token, i in ids.items()})
    bytes_ = _byte_tokens(ids) if fallback else {}
    if unknown is None and len(bytes_) < 256:
        raise UnsupportedError(f"{path}: 'model.unk_id': is missing")

    return lambda word: _fused(word, viterbi(word), unknown, bytes_, ids)


def _fused(
    word: str, path: list[Step], unknown: int | None,
    bytes_: dict[int, int], ids: dict[str, int],
) -> list[Piece]:  # fmt: skip
    """Unknown neighbours become one piece, and that its bytes if they are tokens."""
    pieces: list[Piece] = []
    index = 0
    while index < len(path):
        token, start, end = path[index]
        index += 1
        if token is not None and token != unknown:
            pieces.append((token, start, end))
            continue
        while index < len(path) and path[index][0] in (None, unknown):
            end = path[index][2]
            index += 1
        content = word[start:end]
        utf8 = content.encode()
        if content in ids:
            pieces.append((ids[content], start, end))
        elif bytes_ and all(byte in bytes_ for byte in utf8):
            pieces += ((bytes_[byte], start, end) for byte in utf8)
        elif unknown is not None:
            pieces.append((unknown, start, end))
    return pieces


def _byte_tokens(ids: Mapping[str, int]) -> dict[int, int]:
    names = ((byte, f"<0x{byte:02X}>") for byte in range(256))
    return {byte: ids[name] for byte, name in names if name in ids}


def _bpe(
    path: Path, options: dict[str, Any], ids: dict[str, int], merges: list[tuple[str, str]],
    unknown: int | None,
) -> Model:  # fmt: skip
    """Characters are merged in pairs, the pair that comes first in the list of merges first."""
    flags = ("fuse_unk", "byte_fallback", "ignore_merges")
    fuses, fallback, whole = (optional(path, options, f, False, bool, "model.") for f in flags)
    suffix = optional(path, options, "end_of_word_suffix", "", str, "model.")
    prefix = optional(path, options, "continuing_subword_prefix", "", str, "model.")
    if options.get("dropout"):
        raise UnsupportedError(f"{path}: 'model.dropout': {str(options['dropout'])[:40]!r}")
    if options.get("unk_token") is not None and unknown is None:
        raise FormatError(
            f"{path}: 'model.unk_token': {str(options['unk_token'])[:40]!r} is not a token"
        )
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks[f"{left}\0{right}"] = rank  # of a repeated pair the last counts
        if not (left and right and left + right[len(prefix) :] in ids):
            raise FormatError(f"{path}: merge {str((left, right))[:80]} does not make a token")
    bytes_ = _byte_tokens(ids) if fallback else {}
    separator = "\0"
    if options.get("by_rank") is True:
        ranks, separator = ids, ""
    return _Bpe(ids, ranks, separator, prefix, suffix, bytes_, unknown, fuses, whole)


@dataclass(frozen=True)
class _Bpe:
    """Byte-pair encoding of a word.

    `ranks` has the order of merges by their two parts, joined by `separator`; `fuses` joins unknown
    neighbours to one piece; `whole` takes words that are tokens as they are.
    """

    ids: dict[str, int]
    ranks: dict[str, int]
    separator: str
    prefix: str
    suffix: str
    bytes: dict[int, int]
    unknown: int | None
    fuses: bool
    whole: bool

    def __call__(self, word: str) -> list[Piece]:
        """The tokens of a word, with their spans."""
        if self.whole and word in self.ids:
            return [(self.ids[word], 0, len(word))]
        pieces: list[Piece] = []
        for known, group in groupby(self._symbols(word), key=lambda symbol: symbol[0] != ""):
            parts = list(group)
            if known:
                pieces += _merged(parts, self.ids, self.ranks, self.separator, len(self.prefix))
            else:
                pieces += ((self.unknown or 0, start, end) for _, start, end in parts)
        return pieces

    def _symbols(self, word: str) -> Iterator[tuple[str, int, int]]:
        """The symbols to merge and their spans; "" is unknown."""
        ids, bytes_ = self.ids, self.bytes
        last = len(word) - 1
        begin = -1  # of a run of unknown characters
        for at, character in enumerate(word):
            symbol = self.prefix + character if at else character
            symbol += self.suffix if at == last else ""
            utf8 = symbol.encode() if bytes_ and symbol not in ids else b""
            if symbol in ids or (utf8 and all(byte in bytes_ for byte in utf8)):
                if begin >= 0:
                    yield "", begin, at
                    begin = -1
                names = (f"<0x{byte:02X}>" for byte in utf8) if utf8 else (symbol,)
                yield from ((name, at, at + 1) for name in names)
            elif self.unknown is not None:
                if begin >= 0 and not self.fuses:
                    yield "", begin, at
                begin = begin if self.fuses and begin >= 0 else at
        if begin >= 0:
            yield "", begin, len(word)


def _merged(
    symbols: list[tuple[str, int, int]],
    ids: dict[str, int],
    ranks: dict[str, int],
    separator: str,
    cut: int,
) -> Iterator[Piece]:
    """The tokens that the symbols are merged to, with their spans."""
    at = 0
    for piece in merge([symbol for symbol, _, _ in symbols], ranks, separator, cut=cut):
        start, end = symbols[at][1], symbols[at][2]
        left = len(piece) - len(symbols[at][0])
        at += 1
        while left:
            end = symbols[at][2]
            left -= len(symbols[at][0]) - cut
            at += 1
        yield ids[piece], start, end
