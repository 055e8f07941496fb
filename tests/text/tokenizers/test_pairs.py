"""Two texts that a model reads together: the tokens between them, from every post-processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.text.tokenizers import hugging_face
from tokenizers import Tokenizer, processors

import halfbyte
from halfbyte.errors import FormatError
from halfbyte.formats.huggingface.tokenizer import tokenizer_metadata
from halfbyte.formats.pretokenizers import SPLITS
from halfbyte.formats.tokens import BETWEEN
from halfbyte.quantize.gguf_writer import write_gguf

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cats", "eat", "fish"]
SEPARATOR = "tokenizer.ggml.add_sep_token"


def words(pair: str) -> Tokenizer:
    tokenizer = hugging_face.word_piece({word: i for i, word in enumerate(WORDS)})
    names = ("[CLS]", "[SEP]", "[MASK]")
    tokenizer.post_processor = (
        processors.TemplateProcessing("[CLS] $A [SEP]", pair, [(n, WORDS.index(n)) for n in names])
        if pair
        else processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))
    )
    return tokenizer


def pieces(repository: Path, pair: str) -> Tokenizer:
    tokenizer = hugging_face.byte_level(SPLITS["gpt-2"], hugging_face.lines(repository))
    special = [("<s>", 0), ("</s>", 1)]
    tokenizer.post_processor = (
        processors.TemplateProcessing("<s> $A </s>", pair, special)
        if pair
        else processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    )
    return tokenizer


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("words", "[CLS] $A [SEP] $B:1 [SEP]:1", {SEPARATOR: False}),
    ("words", "[CLS] $A [SEP] [MASK] $B [SEP]", {BETWEEN: [3, 4]}),
    ("words", "", {SEPARATOR: True}),  # MPNet's
    ("pieces", "", {SEPARATOR: True}),  # RoBERTa's
    ("pieces", "<s> $A </s> </s> $B </s>", {SEPARATOR: True}),
    ("pieces", "<s> $A </s> $B </s>", {SEPARATOR: False}),  # ModernBERT's
    ("pieces", "<s> $A <s> $B </s>", {BETWEEN: [0]}),
]


@pytest.mark.parametrize(("kind", "pair", "keys"), CASES)
def test_tokens_between_two_texts(
    kind: str, pair: str, keys: dict[str, Any], repository: Path, tmp_path: Path
) -> None:
    judge = words(pair) if kind == "words" else pieces(repository, pair)
    judge.save(str(tmp_path / "tokenizer.json"))
    metadata = tokenizer_metadata(tmp_path / "tokenizer.json")
    found = {k: np.asarray(v).tolist() for k, v in metadata.items() if k in (SEPARATOR, BETWEEN)}
    assert found == keys
    write_gguf(tmp_path / "v.gguf", {"general.architecture": "bert", **metadata}, [])
    for path in (tmp_path / "tokenizer.json", tmp_path / "v.gguf"):
        tokenizer = halfbyte.load_tokenizer(path)
        parts = (tokenizer.encode(text, add_special_tokens=False) for text in ("cats eat", "fish"))
        first, second = parts
        ids = [*tokenizer.before, *first, *tokenizer.between, *second, *tokenizer.after]
        assert ids == judge.encode("cats eat", "fish").ids


def test_without_a_word_about_pairs(repository: Path, tmp_path: Path) -> None:
    """Older GGUF files: RoBERTa's kin have two tokens between, BERT's one."""
    for kind, count in (("words", 1), ("pieces", 2)):
        judge = words("") if kind == "words" else pieces(repository, "")
        judge.save(str(tmp_path / "tokenizer.json"))
        metadata = tokenizer_metadata(tmp_path / "tokenizer.json")
        del metadata[SEPARATOR]
        if kind == "words":  # the older name of the flag for the end
            metadata[SEPARATOR] = metadata.pop("tokenizer.ggml.add_eos_token")
        write_gguf(tmp_path / "v.gguf", {"general.architecture": "bert", **metadata}, [])
        tokenizer = halfbyte.load_tokenizer(tmp_path / "v.gguf")
        assert len(tokenizer.after) == 1
        assert tokenizer.between == tokenizer.after * count
    wrong = {"general.architecture": "bert", **metadata, BETWEEN: np.array([1 << 20], np.int32)}
    write_gguf(tmp_path / "v.gguf", wrong, [])
    with pytest.raises(FormatError, match="between_token_ids': expected ids of tokens"):
        _ = halfbyte.load_tokenizer(tmp_path / "v.gguf").between
