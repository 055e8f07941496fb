"""Tokenizers: text to token ids and back; `from_metadata` makes the one a model file names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import open_model
from halfbyte.formats.mapped import map_file
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.tokens import PIPELINE
from halfbyte.text.tokenizers.vocabulary import Vocabulary

__all__ = ["StreamDecoder", "Tokenizer", "from_metadata", "load_tokenizer"]


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
    def vocabulary(self) -> Vocabulary:
        """The metadata it is made from."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of tokens; ids are 0 ... vocab_size - 1."""
        ...

    @property
    def bos(self) -> int:
        """The token that begins a text; where there is none, the one that ends a text before."""
        ...

    @property
    def eos(self) -> int:
        """The token that ends a text."""
        ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens after which generation is over."""
        ...

    def encode(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Token ids of a text, with the special tokens around it that the model expects.

        With `parse_special`, control tokens that the text spells are these tokens, not text.
        """
        ...

    def encode_batch(
        self, texts: Iterable[str], add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[list[int]]:
        """Token ids of several texts."""
        ...

    def encode_with_offsets(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids, and for each the first character of the text, and the one after the last."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids; special tokens have none."""
        ...

    def stream(self, previous: Iterable[int] = ()) -> StreamDecoder:
        """A decoder of what follows the ids `previous`, whose text it does not repeat."""
        ...


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Open a tokenizer alone.

    Parameters
    ----------
    path : path
        A GGUF file, with or without tensors; a llama2.c model; a tokenizer.json or tokenizer.model;
        a Hugging Face folder.

    Raises
    ------
    FormatError, UnsupportedError
        With one line that names the file, and what was expected and found.
    """
    from halfbyte.formats.huggingface.tokenizer import is_tokenizer_file, tokenizer_metadata

    path = Path(path)
    if path.is_dir() or is_tokenizer_file(map_file(path)[:64]):
        return from_metadata(ModelFile(path, "tokenizer", tokenizer_metadata(path), {}))
    return from_metadata(open_model(path))


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
    if PIPELINE in file.metadata:
        from halfbyte.text.tokenizers.pipeline import PipelineTokenizer

        return PipelineTokenizer(file)
    if kind == "gemma4":
        from halfbyte.text.tokenizers.pipeline import PipelineTokenizer, gemma4

        return PipelineTokenizer(gemma4(file))
    if kind == "llama":
        from halfbyte.text.tokenizers.sentencepiece import SentencePieceTokenizer

        return SentencePieceTokenizer(file)
    if kind == "gpt2":
        from halfbyte.text.tokenizers.byte_level import ByteLevelTokenizer

        return ByteLevelTokenizer(file)
    if kind == "t5":
        from halfbyte.text.tokenizers.unigram import UnigramTokenizer

        return UnigramTokenizer(file)
    if kind == "bert":
        from halfbyte.text.tokenizers.wordpiece import WordPieceTokenizer

        return WordPieceTokenizer(file)
    raise UnsupportedError(
        f"{file.path}: tokenizer: expected 'llama', 'gpt2', 't5', 'bert' or 'gemma4', found "
        f"{kind[:80]!r}"
    )
