"""The tokenizer of a Hugging Face folder, or of one of its files, under GGUF's keys.

tokenizer.json, tokenizer.model and the files beside them become the keys ``tokenizer.ggml.*`` that
llama.cpp reads, and tokenizers are built from these keys only: ``gpt2`` (byte-level BPE), ``llama``
(SentencePiece BPE), ``t5`` (SentencePiece unigram), ``bert`` (WordPiece). A tokenizer.json must
match one of these pipelines exactly; otherwise its steps are stored in
``halfbyte.tokenizer.pipeline`` (`as_it_is`). If GGUF has a similar name, its keys are written too,
for llama.cpp; else ``tokenizer.ggml.model`` is ``huggingface``, which llama.cpp refuses.

GGUF has no keys for the following, which are written as ``halfbyte.tokenizer.*``: tokens that strip
the whitespace around them (``lstrip_token_ids``, ``rstrip_token_ids``), more than one special token
before or after a text (``before_token_ids``, ``after_token_ids``), those between two texts where
no flag says it (``between_token_ids``), and scores of a tokenizer.model, which SentencePiece adds
in float32 (``float32_sums``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.huggingface import rwkv_vocabulary
from halfbyte.formats.huggingface.added import Added, read_added
from halfbyte.formats.huggingface.pipelines import sentencepiece_pipeline
from halfbyte.formats.huggingface.sentencepiece_model import read_sentencepiece
from halfbyte.formats.huggingface.tokenizer_json import (
    add_tokens,
    read_tokenizer_json,
    vocabulary,
)
from halfbyte.formats.json_file import kind_of, optional, read_json
from halfbyte.formats.mapped import map_file
from halfbyte.formats.model_file import MetadataValue
from halfbyte.formats.tokens import fit_vocabulary

_MODELS = ("tokenizer.model", "spiece.model")
_ROLES = {  # Hugging Face's name of a special token -> GGUF's
    "bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding",
    "cls": "cls", "mask": "mask",
}  # fmt: skip
# Classes whose flags decide about BOS and EOS, regardless of tokenizer.json
_BY_FLAGS = ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer")

Metadata = dict[str, MetadataValue]


def tokenizer_metadata(path: Path, notes: list[str] | None = None) -> Metadata:
    """The tokenizer of a folder or a file.

    Parameters
    ----------
    path
        A tokenizer.json, a tekken.json, a SentencePiece tokenizer.model, or a folder with one of
        them and Hugging Face's other files: tokenizer_config.json, special_tokens_map.json,
        added_tokens.json, config.json, generation_config.json, chat_template.jinja.
    notes
        Descriptions of differences from the files are appended here.

    Returns
    -------
    dict
        ``tokenizer.ggml.*`` and ``tokenizer.chat_template``. If the folder has a config.json, the
        number of tokens is its vocab_size; see `fit_vocabulary`.

    Raises
    ------
    FormatError
        Damaged, missing or contradicting files.
    UnsupportedError
        A tokenizer with a step that is not supported.
    """
    if not path.is_dir():
        return _read_file(path)
    config = _optional_json(path / "tokenizer_config.json")
    metadata = _read_folder(path, config)
    model = _optional_json(path / "config.json")
    generation = _optional_json(path / "generation_config.json")
    if metadata["tokenizer.ggml.model"] != "rwkv":  # whose special tokens its list has not
        _set_roles(path, metadata, config)
        _set_model_ids(path, metadata, model, generation)
        _set_flags(metadata, config)
    metadata |= _chat_templates(path, config)
    size = _vocabulary_size(model)
    if size is not None:
        fit_vocabulary(str(path), metadata, size, [] if notes is None else notes)
    return metadata


def is_tokenizer_file(start: bytes) -> bool:
    """Whether a file that begins with `start` is a tokenizer.json or a tokenizer.model."""
    return start.lstrip()[:1] == b"{" or start[:1] == b"\n"


def _read_file(path: Path) -> Metadata:
    if map_file(path)[:64].lstrip()[:1] == b"{":
        return read_tokenizer_json(path)
    return read_sentencepiece(path)


def _read_folder(path: Path, config: dict[str, Any]) -> Metadata:
    model = next((path / name for name in _MODELS if (path / name).is_file()), None)
    if (path / "tokenizer.json").is_file():
        return read_tokenizer_json(path / "tokenizer.json", model)
    if model is None and (path / "tekken.json").is_file():
        return read_tokenizer_json(path / "tekken.json")
    if model is None and (path / rwkv_vocabulary.FILE).is_file():
        return rwkv_vocabulary.read_rwkv_vocabulary(path / rwkv_vocabulary.FILE)
    if model is None:
        raise FormatError(f"{path}: no tokenizer: expected tokenizer.json or tokenizer.model")
    pipeline = sentencepiece_pipeline(read_sentencepiece(model))
    add_tokens(path, pipeline, _added_beside(path, config))
    return vocabulary(model, pipeline)


def _added_beside(path: Path, config: dict[str, Any]) -> Iterator[Added]:
    """Added tokens of a tokenizer.model, which are in two other files."""
    beside = path / "tokenizer_config.json"
    listed = optional(beside, config, "added_tokens_decoder", {}, dict)
    for number, value in listed.items():
        if not number.isdecimal() or len(number) > 9:
            raise FormatError(f"{beside}: 'added_tokens_decoder': id {number[:40]!r}")
        yield read_added(beside, value, int(number))
    for content, index in _optional_json(path / "added_tokens.json").items():
        if str(index) not in listed:
            if type(index) is not int:
                raise FormatError(f"{path / 'added_tokens.json'}: {content!r} has no id")
            yield Added(index, content, special=False)


def _set_roles(path: Path, metadata: Metadata, config: dict[str, Any]) -> None:
    """Set the ids of special tokens that the configuration names by their text."""
    tokens = metadata["tokenizer.ggml.tokens"]
    ids = {token: index for index, token in enumerate(tokens)}  # type: ignore[arg-type]
    named = _optional_json(path / "special_tokens_map.json") | config
    for role, name in _ROLES.items():
        value = named.get(f"{role}_token")
        text = value.get("content") if isinstance(value, dict) else value
        key = f"tokenizer.ggml.{name}_token_id"
        if text is None:
            continue
        if not isinstance(text, str):
            raise FormatError(
                f"{path / 'tokenizer_config.json'}: '{role}_token': expected a string, found "
                f"{kind_of(text)}"
            )
        number = ids.get(text)
        if number is None and role not in ("bos", "eos"):
            continue  # Hugging Face would add it, but no model was trained with it
        if number is None:
            raise FormatError(
                f"{path / 'tokenizer_config.json'}: '{role}_token': {text[:80]!r} is not in the "
                "vocabulary"
            )
        is_added = metadata.get(f"tokenizer.ggml.add_{role}_token") and key in metadata
        if role in ("bos", "eos") and is_added:
            # The token that is added to a text decides; the configured EOS still ends a generation.
            if role == "eos" and metadata[key] != number:
                metadata["tokenizer.ggml.eot_token_id"] = np.uint32(number)
            continue
        metadata[key] = np.uint32(number)


def _set_model_ids(
    path: Path, metadata: Metadata, model: dict[str, Any], generation: dict[str, Any]
) -> None:
    """Set ids that only the model's configuration has, and all that end a generation."""
    count = len(metadata["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    for role in ("bos", "eos", "pad"):
        key = f"tokenizer.ggml.{_ROLES[role]}_token_id"
        for name, source in (("config.json", model), ("generation_config.json", generation)):
            for number in _ids(path / name, source, f"{role}_token_id"):
                if number >= count:
                    continue  # belongs to a part of the model that is not for text
                if key not in metadata:
                    metadata[key] = np.uint32(number)
                elif role == "eos" and source is generation:
                    _add_end(metadata, number)


def _ids(path: Path, source: dict[str, Any], name: str) -> list[int]:
    value = source.get(name)
    numbers = value if isinstance(value, list) else [value]
    if value is None:
        return []
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise FormatError(f"{path}: '{name}': expected token ids, found {str(value)[:80]}")
    return list(numbers)


def _add_end(metadata: Metadata, number: int) -> None:
    """Add a token that ends a generation; GGUF has two more keys for these."""
    keys = [f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom")]
    if number in [int(metadata[key]) for key in keys if key in metadata]:  # type: ignore[arg-type]
        return
    free = next((key for key in keys if key not in metadata), None)
    if free is not None:
        metadata[free] = np.uint32(number)


def _set_flags(metadata: Metadata, config: dict[str, Any]) -> None:
    kind = config.get("tokenizer_class")
    if not isinstance(kind, str) or kind.removesuffix("Fast") not in _BY_FLAGS:
        return
    for role in ("bos", "eos"):
        flag = config.get(f"add_{role}_token")
        if isinstance(flag, bool) and f"tokenizer.ggml.{role}_token_id" in metadata:
            metadata[f"tokenizer.ggml.add_{role}_token"] = flag


def _chat_templates(path: Path, config: dict[str, Any]) -> Metadata:
    """The default template, and others by name."""
    beside = path / "chat_template.jinja"
    if beside.is_file():
        try:
            return {"tokenizer.chat_template": beside.read_text(encoding="utf-8")}
        except UnicodeDecodeError:
            raise FormatError(f"{beside}: is not UTF-8") from None
    value = config.get("chat_template")
    value = value or _optional_json(path / "chat_template.json").get("chat_template")
    if value is None:
        return {}
    if isinstance(value, str):
        return {"tokenizer.chat_template": value}
    templates: Metadata = {}
    for entry in value if isinstance(value, list) else [value]:
        name = entry.get("name") if isinstance(entry, dict) else None
        text = entry.get("template") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not isinstance(text, str):
            raise FormatError(
                f"{path / 'tokenizer_config.json'}: 'chat_template': expected a string, or objects "
                "with name and template"
            )
        suffix = "" if name == "default" else f".{name}"
        templates[f"tokenizer.chat_template{suffix}"] = text
    others = [key.partition("template.")[2] for key in templates if "template." in key]
    return templates | ({"tokenizer.chat_templates": others} if others else {})


def _vocabulary_size(model: dict[str, Any]) -> int | None:
    """Rows of the embedding, from config.json."""
    inner = model.get("text_config")
    size = (inner if isinstance(inner, dict) else model).get("vocab_size", model.get("vocab_size"))
    return size if type(size) is int and size > 0 else None


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}
