"""The decoders of tokenizer.json: the text that a token stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfbyte.errors import UnsupportedError
from halfbyte.formats.json_file import field, optional
from halfbyte.formats.tokens import BYTE_TOKEN, LETTERS

_BYTES = {character: byte for byte, character in LETTERS.items()}


@dataclass(frozen=True)
class TokenDecoder:
    """How tokens become text.

    Attributes
    ----------
    content : callable
        UTF-8 (perhaps a part of a character) of a token; a space between words comes first.
    strips_space : bool
        The space before the first token is not part of the text.
    first : callable, optional
        The first token's bytes, if they are not `content` without a space.
    strips_end : bool
        The space after the last token is not part of the text.
    """

    content: Callable[[str], bytes]
    strips_space: bool = False
    strips_end: bool = False
    first: Callable[[str], bytes] | None = None


def make_decoder(path: Path, steps: list[dict[str, Any]]) -> TokenDecoder:
    """The decoder of a pipeline; raises `FormatError` and `UnsupportedError`."""
    kinds = [field(path, step, "type", str, "decoder.") for step in steps]
    if not kinds:
        return TokenDecoder(lambda token: b" " + token.encode(), strips_space=True)
    if kinds == ["ByteLevel"]:
        return TokenDecoder(from_letters)
    if kinds == ["WordPiece"]:
        prefix = optional(path, steps[0], "prefix", "##", str, "decoder.")
        cleanup = optional(path, steps[0], "cleanup", True, bool, "decoder.")
        return TokenDecoder(
            lambda token: _word_piece(token, prefix, cleanup),
            strips_space=True,
            first=lambda token: (clean(token) if cleanup else token).encode(),
        )
    if kinds == ["BPEDecoder"]:
        suffix = optional(path, steps[0], "suffix", "</w>", str, "decoder.")
        return TokenDecoder(lambda token: token.replace(suffix, " ").encode(), strips_end=True)
    if kinds == ["Metaspace"]:
        mark = optional(path, steps[0], "replacement", "\u2581", str, "decoder.")
        old = optional(path, steps[0], "add_prefix_space", True, bool, "decoder.")
        default = "always" if old else "never"
        scheme = optional(path, steps[0], "prepend_scheme", default, str, "decoder.")
        return TokenDecoder(
            lambda token: token.replace(mark, " ").encode(),
            strips_space=scheme != "never",
            first=lambda token: token.replace(mark, "").encode(),
        )
    return _replacing(path, steps, kinds)


def _replacing(path: Path, steps: list[dict[str, Any]], kinds: list[str]) -> TokenDecoder:
    """Replaces strings, joins bytes, and strips the space at the beginning."""
    replaced: list[tuple[str, str]] = []
    fallback = strips = False
    for step, kind in zip(steps, kinds, strict=True):
        pattern = step.get("pattern")
        string = pattern.get("String") if isinstance(pattern, dict) else None
        if kind == "Replace" and isinstance(string, str) and string:
            replaced.append((string, field(path, step, "content", str, "decoder.")))
        elif kind == "ByteFallback":
            fallback = True
        elif kind == "Strip" and step.get("content") == " " and step.get("stop") == 0:
            strips = step.get("start") == 1
        elif kind != "Fuse":
            raise UnsupportedError(f"{path}: expected a known decoder, found {str(step)[:200]}")

    def content(token: str) -> bytes:
        if fallback and BYTE_TOKEN.fullmatch(token):
            return bytes([int(token[3:5], 16)])
        for old, new in replaced:
            token = token.replace(old, new)
        return token.encode()

    return TokenDecoder(content, strips)


def from_letters(token: str) -> bytes:
    """The bytes of a token of byte-level BPE; the UTF-8 of another token."""
    values = [_BYTES.get(character) for character in token]
    return token.encode() if None in values else bytes(values)  # type: ignore[arg-type]


def _word_piece(token: str, prefix: str, cleanup: bool) -> bytes:
    text = token[len(prefix) :] if token.startswith(prefix) else " " + token
    return (clean(text) if cleanup else text).encode()


def clean(text: str) -> str:
    """A token of WordPiece without the space before a mark that ends something."""
    for mark in (".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"):
        text = text.replace(" " + mark, mark)
    return text
