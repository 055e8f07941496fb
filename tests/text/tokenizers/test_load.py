"""`halfbyte.load_tokenizer`: the same tokenizer from every kind of file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece
from tests.text.tokenizers import hugging_face
from tests.text.tokenizers.strings import strings

import halfbyte
from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.huggingface.tokenizer import tokenizer_metadata
from halfbyte.formats.pretokenizers import SPLITS
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.tokenizers.base import BaseTokenizer

VOCABULARIES = ("gpt-2", "llama-spm", "bert-bge")


@pytest.fixture(params=["byte-level", "unigram", "bpe"])
def folder(request: pytest.FixtureRequest, repository: Path, tmp_path: Path) -> Path:
    """A folder with a tokenizer and its configuration files."""
    if request.param == "byte-level":
        judge = hugging_face.byte_level(SPLITS["qwen2"], hugging_face.lines(repository))
        judge.save(str(tmp_path / "tokenizer.json"))
        config = {"eos_token": "<|end|>", "bos_token": None}
    else:
        model = hugging_face.train_sentencepiece(repository, model_type=request.param)
        (tmp_path / "tokenizer.model").write_bytes(model)
        added = {"700": {"content": "<|user|>", "special": True}}
        config = {"eos_token": "</s>", "added_tokens_decoder": added}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "config.json").write_text('{"vocab_size": 1000}', encoding="utf-8")
    return tmp_path


def test_a_folder_and_its_gguf_file(folder: Path) -> None:
    """A GGUF without any tensor."""
    path = folder / "vocabulary.gguf"
    write_gguf(path, {"general.architecture": "llama", **tokenizer_metadata(folder)}, [])
    first, second = halfbyte.load_tokenizer(folder), halfbyte.load_tokenizer(path)
    assert first.vocab_size == second.vocab_size == 1000
    assert (first.bos, first.eos, first.stop_ids) == (second.bos, second.eos, second.stop_ids)
    for text in strings(500, extra=("<|user|>", "<|end|>")):
        for parse_special in (False, True):
            ids = first.encode(text, parse_special=parse_special)
            assert second.encode(text, parse_special=parse_special) == ids
        assert first.decode(ids) == second.decode(ids)


def test_a_tokenizer_model_with_added_tokens(repository: Path, tmp_path: Path) -> None:
    model = hugging_face.train_sentencepiece(repository, model_type="bpe")
    (tmp_path / "tokenizer.model").write_bytes(model)
    judge = sentencepiece.SentencePieceProcessor(model_proto=model)
    count = judge.get_piece_size()
    added = {"<|user|>": count, "<fox>": count + 1}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added), encoding="utf-8")
    config = {
        "tokenizer_class": "LlamaTokenizer", "add_bos_token": False, "add_eos_token": True,
        "eos_token": "<|user|>", "added_tokens_decoder": {
            str(count): {"content": "<|user|>", "special": True}
        },
    }  # fmt: skip
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = halfbyte.load_tokenizer(tmp_path)
    assert tokenizer.encode("a fox") == [*judge.encode("a fox"), count]
    assert tokenizer.encode("a<fox>", add_special_tokens=False)[-1] == count + 1
    assert count not in tokenizer.encode("<|user|>", add_special_tokens=False)
    assert tokenizer.encode("<|user|>", False, parse_special=True) == [count]
    assert count in tokenizer.stop_ids


def test_the_shipped_model(storyteller: Path) -> None:
    tokenizer = halfbyte.load_tokenizer(storyteller)
    assert tokenizer.decode(tokenizer.encode("Once upon a time")) == "Once upon a time"


def test_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"expected tokenizer\.json or tokenizer\.model"):
        halfbyte.load_tokenizer(tmp_path)
    path = tmp_path / "m.gguf"
    write_gguf(path, {"general.architecture": "llama", "tokenizer.ggml.model": "plamo2"}, [])
    with pytest.raises(UnsupportedError, match="'gemma4' or 'rwkv', found 'plamo2'"):
        halfbyte.load_tokenizer(path)


def test_tables_are_imported_when_needed(storyteller: Path) -> None:
    """Loading a model imports only its own family of tokenizers, and no table of Unicode."""
    code = (
        "import sys, halfbyte; halfbyte.load_tokenizer(sys.argv[1]);"
        "print(*[m for m in sys.modules if m.startswith('halfbyte.text.tokenizers.') and"
        " m.rsplit('.')[-1] in"
        " ('unicode_table', 'byte_level', 'wordpiece', 'unigram', 'pipeline', 'sentencepiece')])"
    )
    command = [sys.executable, "-c", code, str(storyteller)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["halfbyte.text.tokenizers.sentencepiece"]


@pytest.mark.data
@pytest.mark.parametrize("parse_special", [False, True])
@pytest.mark.parametrize("name", VOCABULARIES)
def test_every_line_is_llama_cpps(name: str, parse_special: bool, data: Path) -> None:
    """The texts spell no control tokens, so that looking for them changes nothing."""
    path = data / f"gguf-vocab/ggml-vocab-{name}.gguf"
    tokenizer = halfbyte.load_tokenizer(path)
    assert isinstance(tokenizer, BaseTokenizer)
    inputs, outputs = (path.with_name(path.name + end).read_bytes() for end in (".inp", ".out"))
    texts = inputs.decode().split("\n__ggml_vocab_test__\n")
    lines = outputs.decode().split("\n")
    assert len(texts) == len(lines) == 47
    for text, line in zip(texts, lines, strict=True):
        ids = tokenizer.encode(text, add_special_tokens=False, parse_special=parse_special)
        assert ids == [int(number) for number in line.split()], repr(text)
        if name != "bert-bge":
            assert tokenizer.decode(ids) == text
