"""A Hugging Face folder's tokenizer files become GGUF's metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats.files import VOCABULARY
from tests.formats.folders import write_folder
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors, trainers

import halfbyte
from halfbyte.errors import FormatError
from halfbyte.formats.huggingface.tokenizer import tokenizer_metadata
from halfbyte.formats.pretokenizers import SPLITS
from halfbyte.text.describe import describe


def write(folder: Path, name: str, value: Any) -> None:
    (folder / name).write_text(json.dumps(value), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, repository: Path) -> Path:
    """A folder like a Llama 3 chat model's: BOS before a text, three tokens that end one."""
    text = (repository / "tests/data/storyteller-heldout.txt").read_text(encoding="utf-8")
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLITS["llama-bpe"].patterns[0]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|begin|>", "<|end|>", "<|turn|>", "<|message|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(text.split("\n\n"), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = {"bos_token": "<|begin|>", "eos_token": {"content": "<|turn|>"}, "pad_token": None}
    write(tmp_path, "tokenizer_config.json", config | {"chat_template": "{{ messages }}"})
    write(tmp_path, "config.json", {"vocab_size": 640, "eos_token_id": [1, 2]})
    write(tmp_path, "generation_config.json", {"eos_token_id": [1, 3, 2]})
    return tmp_path


def test_a_folder(folder: Path) -> None:
    metadata = tokenizer_metadata(folder)
    judge = Tokenizer.from_file(str(folder / "tokenizer.json"))
    size = judge.get_vocab_size()
    tokens = metadata.pop("tokenizer.ggml.tokens")
    assert tokens == [
        *(judge.id_to_token(index) for index in range(size)),
        *(f"[PAD{index}]" for index in range(size, 640)),
    ]
    types = np.asarray(metadata.pop("tokenizer.ggml.token_type"))
    assert types.tolist() == [3] * 4 + [1] * (size - 4) + [5] * (640 - size)
    merges = json.loads((folder / "tokenizer.json").read_text())["model"]["merges"]
    assert metadata.pop("tokenizer.ggml.merges") == [" ".join(pair) for pair in merges]
    assert metadata == {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": 1,
        "tokenizer.ggml.eom_token_id": 3,
        "tokenizer.chat_template": "{{ messages }}",
    }


def test_a_template_in_a_file_of_its_own(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ bos_token }}", encoding="utf-8")
    assert tokenizer_metadata(folder)["tokenizer.chat_template"] == "{{ bos_token }}"


def test_templates_with_names(folder: Path) -> None:
    templates = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    config = json.loads((folder / "tokenizer_config.json").read_text())
    write(folder, "tokenizer_config.json", config | {"chat_template": templates})
    metadata = tokenizer_metadata(folder)
    assert metadata["tokenizer.chat_template"] == "a"
    assert metadata["tokenizer.chat_template.tool_use"] == "b"
    assert metadata["tokenizer.chat_templates"] == ["tool_use"]


def test_a_tokenizer_file_without_a_folder(folder: Path) -> None:
    metadata = tokenizer_metadata(folder / "tokenizer.json")
    assert metadata["tokenizer.ggml.bos_token_id"] == 0
    assert "tokenizer.ggml.eos_token_id" not in metadata


def added(folder: Path, content: str, index: int, special: bool) -> None:
    """Add a token to tokenizer.json, like a fine-tune that does not resize the embedding."""
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    token = {"id": index, "content": content, "special": special, **flags}
    data["added_tokens"].append(token)
    write(folder, "tokenizer.json", data)


@pytest.mark.parametrize("special", [True, False])
def test_added_tokens_without_a_row_are_text(special: bool, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    with halfbyte.load(folder) as model:
        expected = model.tokenizer.encode("a <image> b", parse_special=True)
        logits = model.logits(expected)
    added(folder, "<image>", VOCABULARY, special)
    added(folder, "\x1b[2J", VOCABULARY + 1, special)
    write(folder, "tokenizer_config.json", {"pad_token": "<image>"})
    with halfbyte.load(folder) as model:
        assert model.vocabulary == model.tokenizer.vocab_size == VOCABULARY
        assert model.tokenizer.encode("a <image> b", parse_special=True) == expected
        assert max(expected) < VOCABULARY
        np.testing.assert_array_equal(model.logits(expected), logits)
        assert "tokenizer.ggml.padding_token_id" not in model.file.metadata
    note = "2 tokens have no row in the embedding, so they are text: '<image>', '\\x1b[2J'"
    assert f"notes\n  {note}\n" in describe(folder)


@pytest.mark.parametrize("role", ["eos", "unk"])
def test_a_token_without_a_row_that_a_text_needs(role: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    added(folder, "<new>", VOCABULARY, special=True)
    write(folder, "tokenizer_config.json", {f"{role}_token": "<new>"})
    with pytest.raises(FormatError, match="expected a token with a row in the embedding, of which"):
        halfbyte.load(folder)


def test_words_without_a_row(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    data = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    data["model"]["vocab"]["word"] = VOCABULARY
    write(folder, "tokenizer.json", data)
    with pytest.raises(FormatError, match="of the embedding, and 'word' is not an added one"):
        halfbyte.load(folder)
