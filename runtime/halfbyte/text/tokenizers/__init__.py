"""Tokenizers: from text to token ids and back, made from a model file's metadata.

The metadata are the keys ``tokenizer.ggml.*`` that llama.cpp reads: "gpt2" is byte-level BPE,
"llama" SentencePiece BPE, "t5" SentencePiece unigram, "bert" WordPiece, and "rwkv" takes the
longest token at each place. `pipeline` runs a tokenizer.json for which GGUF has no name, step by
step. Unknown steps are refused, never approximated; nothing takes time quadratic in a text.

Where llama.cpp differs from the original, the original is followed: user-defined tokens of
SentencePiece are taken leftmost, then longest; Qwen's texts are composed (NFC); words of more than
100 characters are unknown to WordPiece; a SentencePiece model's own normalization is applied to
both of its kinds; bytes without a token become nothing in byte-level BPE. GGUF has no keys for
tokens that take the whitespace beside them, for more than one special token before or after a
text, for some of those between two texts, and for sums in float32; they are under
``halfbyte.tokenizer.*``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.mapped import map_file
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.tokens import PIPELINE
from halfbyte.text.opening import open_model
from halfbyte.text.tokenizers.vocabulary import Vocabulary

__all__ = ["StreamDecoder", "Tokenizer", "from_metadata", "load_tokenizer"]


class StreamDecoder(Protocol):
    """Turns token ids into text, one by one and in whole characters."""

    def push(self, token: int) -> str:
        """The text that this token completes; may be empty."""

    def flush(self) -> str:
        """A replacement character for an unfinished character, or nothing."""


class Tokenizer(Protocol):
    """The interface of every tokenizer."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The metadata it is made from."""

    @property
    def before(self) -> list[int]:
        """The special tokens before a text."""

    @property
    def after(self) -> list[int]:
        """The special tokens after a text."""

    @property
    def between(self) -> list[int]:
        """The special tokens between two texts that a model reads together."""

    @property
    def vocab_size(self) -> int:
        """Number of tokens; ids are 0 ... vocab_size - 1."""

    @property
    def bos(self) -> int:
        """The token that begins a text; if there is none, the one that ends the text before."""

    @property
    def eos(self) -> int:
        """The token that ends a text."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end generation."""

    def encode(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Token ids of a text.

        Parameters
        ----------
        text : str
            Surrogates in it become question marks.
        add_special_tokens : bool
            Put the special tokens around it that the model expects.
        parse_special : bool
            Control tokens that the text spells become these tokens; otherwise they are text.
        """

    def encode_batch(
        self, texts: Iterable[str], add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[list[int]]:
        """Token ids of several texts."""

    def encode_with_offsets(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids, and for each the span of the text that it stands for.

        Tokens that stand for parts of a character all have its span; special tokens around the
        text, and what a model puts before words, have an empty one.
        """

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids; special tokens have none, invalid UTF-8 becomes U+FFFD.

        The space that `encode` puts before a text is removed.

        Raises
        ------
        HalfbyteError
            An id is not in the vocabulary.
        """

    def stream(self, previous: Iterable[int] = ()) -> StreamDecoder:
        """A decoder of the tokens after `previous`, whose text it does not repeat."""


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Open a tokenizer without a model.

    Parameters
    ----------
    path : path
        A GGUF file, with or without tensors; a llama2.c model; a tokenizer.json or tokenizer.model;
        a Hugging Face folder.

    Raises
    ------
    FormatError, UnsupportedError
        The message names the file, and what was expected and found.
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
        There is no tokenizer, or one that contradicts itself or the model.
    UnsupportedError
        Its kind is not known.
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
    if kind == "rwkv":
        from halfbyte.text.tokenizers.rwkv import RwkvTokenizer

        return RwkvTokenizer(file)
    raise UnsupportedError(
        f"{file.path}: tokenizer: expected 'llama', 'gpt2', 't5', 'bert', 'gemma4' or 'rwkv', "
        f"found {kind[:80]!r}"
    )
