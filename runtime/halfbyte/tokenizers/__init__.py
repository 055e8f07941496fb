"""Tokenizers: text to token ids and back; `from_metadata` makes the one a model file names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.model_file import ModelFile
from halfbyte.tokenizers.sentencepiece import SentencePieceTokenizer

__all__ = ["StreamDecoder", "Tokenizer", "from_metadata"]


class StreamDecoder(Protocol):
    """Turns token ids into text one by one, never half a character."""

    def push(self, token: int) -> str:
        """Text that is complete with this token; may be empty."""
        ...

    def flush(self) -> str:
        """What an unfinished character leaves: a replacement character, or nothing."""
        ...


class Tokenizer(Protocol):
    """What every tokenizer offers."""

    @property
    def vocab_size(self) -> int:
        """Number of tokens; ids are 0 ... vocab_size - 1."""
        ...

    @property
    def bos(self) -> int:
        """The token that begins a text."""
        ...

    @property
    def eos(self) -> int:
        """The token that ends a text."""
        ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens after which generation is over."""
        ...

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text, with the special tokens around it that the model expects."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids; special tokens have none."""
        ...

    def stream(self, previous: Iterable[int] = ()) -> StreamDecoder:
        """A decoder of what follows the ids `previous`, whose text it does not repeat."""
        ...


def from_metadata(file: ModelFile) -> Tokenizer:
    """The tokenizer that a model file's metadata describes.

    Raises
    ------
    FormatError
        No tokenizer, or one that contradicts itself or the model.
    UnsupportedError
        A kind of tokenizer that halfbyte does not know.
    """
    kind = file.metadata.get("tokenizer.ggml.model")
    if not isinstance(kind, str):
        hint = next((f"; {note}" for note in file.notes if "tokenizer" in note), "")
        raise FormatError(f"{file.path}: metadata 'tokenizer.ggml.model' is missing{hint}")
    if kind != "llama":
        raise UnsupportedError(f"{file.path}: tokenizer {kind[:80]!r}; supported: 'llama'")
    return SentencePieceTokenizer.from_file(file)
