"""Reader of Hugging Face's tokenizer.json, translated to GGUF's tokenizer keys.

The file is a pipeline (normalizer, pre-tokenizer, model, post-processor, decoder) with added
tokens. GGUF names whole pipelines (:mod:`halfbyte.formats.huggingface.pipelines`); others keep
their steps under keys of our own (:mod:`halfbyte.formats.huggingface.as_it_is`). A step that is
not known is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.huggingface.added import Added, read_added
from halfbyte.formats.huggingface.as_it_is import own_keys, read_as_it_is
from halfbyte.formats.huggingface.pipelines import (
    Pipeline,
    model_kind,
    read_pipeline,
    steps,
)
from halfbyte.formats.huggingface.tekken import is_tekken, read_tekken
from halfbyte.formats.huggingface.vocabulary import MAX_TOKENS
from halfbyte.formats.json_file import field, optional, read_json
from halfbyte.formats.model_file import MetadataValue
from halfbyte.formats.tokens import BETWEEN, CONTROL, NORMAL, UNUSED, USER_DEFINED

_MANY_PAIRS = 1 << 16  # of added tokens
_POST = "post_processor."


def read_tokenizer_json(path: Path, model: Path | None = None) -> dict[str, MetadataValue]:
    """The tokenizer under GGUF's keys.

    Parameters
    ----------
    path
        The tokenizer.json.
    model
        A tokenizer.model beside it, whose scores are used if the file has merges instead.

    Raises
    ------
    FormatError
        Not such a file, or one that contradicts itself.
    UnsupportedError
        A pipeline with a step that is not known.
    """
    data = read_json(path)
    if is_tekken(data):
        return read_tekken(path, data)
    added = [read_added(path, value) for value in optional(path, data, "added_tokens", [], list)]
    kind = model_kind(path, data)
    before, after, between = _around_text(path, data)
    around = _around_keys(before, after)
    try:
        pipeline = read_pipeline(path, data, model)
        exact = pipeline.exact and not any(
            token.single_word or (token.normalized and pipeline.normalizes) for token in added
        )
        exact = exact and not _tangled(added) and not any("." in key for key in around)
    except UnsupportedError:  # GGUF has no name for it
        pipeline, exact = read_as_it_is(path, data, kind), False
    if not exact and pipeline.model == "bert":  # whose tokens have another spelling
        pipeline = read_as_it_is(path, data, kind)
    add_tokens(path, pipeline, added)
    if pipeline.model == "bert":  # has other names for these, too
        names = {"bos_token_id": "cls_token_id", "eos_token_id": "seperator_token_id"}
        around |= {new: around[name] for name, new in names.items() if name in around}
    around |= _between_keys(after, between)
    metadata = vocabulary(path, pipeline)
    metadata |= {k if "." in k else f"tokenizer.ggml.{k}": v for k, v in around.items()}
    if not exact:
        metadata |= own_keys(path, data, kind, added, len(metadata["tokenizer.ggml.tokens"]))  # type: ignore[arg-type]
    return metadata


def _tangled(added: list[Added]) -> bool:
    """Whether a token may be inside a control token, which matches first and may become text."""
    control = [token.content for token in added if token.special]
    others = [token.content for token in added if not token.special and token.content]
    if len(control) * len(others) > _MANY_PAIRS:
        return True
    return any(
        other in one or any(one.endswith(other[:size]) for size in range(1, len(other)))
        for one in control
        for other in others
    )


def add_tokens(path: Path, pipeline: Pipeline, tokens: Iterable[Added]) -> None:
    """Put added tokens into a vocabulary; raises `FormatError` if ids contradict."""
    by_id = {number: token for token, number in pipeline.pieces.items()}
    for token in tokens:
        known = pipeline.pieces.get(token.content)
        taken = by_id.get(token.id)
        if not token.content:
            raise FormatError(f"{path}: added token {token.id} is empty")
        if not 0 <= token.id < MAX_TOKENS:
            raise FormatError(f"{path}: added token {token.content[:80]!r}: id {token.id}")
        if (known is not None and known != token.id) or taken not in (None, token.content):
            raise FormatError(
                f"{path}: added token {token.content[:80]!r} has id {token.id}, but in the "
                f"vocabulary {f'that is {str(taken)[:80]!r}' if known is None else known}"
            )
        pipeline.pieces[token.content] = token.id
        by_id[token.id] = token.content
        kind = CONTROL if token.special else USER_DEFINED
        if pipeline.types.get(token.id, NORMAL) in (NORMAL, CONTROL, USER_DEFINED):
            pipeline.types[token.id] = kind
        for name, wanted in (("lstrip", token.lstrip), ("rstrip", token.rstrip)):
            if wanted:
                pipeline.stripping.setdefault(name, []).append(token.id)


def vocabulary(path: Path, pipeline: Pipeline) -> dict[str, MetadataValue]:
    """A pipeline's tokens, types, scores and metadata under GGUF's keys.

    Ids without a token get an unused token, as by llama.cpp's converter.
    """
    count = max(pipeline.pieces.values(), default=-1) + 1
    if not count:
        raise FormatError(f"{path}: 'model.vocab': is empty")
    tokens = [f"[PAD{index}]" for index in range(count)]
    types = np.full(count, UNUSED, np.int32)
    for token, index in pipeline.pieces.items():
        types[index] = pipeline.types.get(index, NORMAL)
        tokens[index] = pipeline.spell(token, int(types[index]))
    try:
        "".join(tokens).encode()
    except UnicodeEncodeError:
        raise FormatError(f"{path}: 'model.vocab': a token is half of a surrogate pair") from None
    metadata: dict[str, MetadataValue] = {
        "model": pipeline.model, "tokens": tokens, "token_type": types, **pipeline.metadata
    }  # fmt: skip
    if pipeline.scores is not None:
        scores = np.zeros(count, np.float32)
        scores[: len(pipeline.scores)] = pipeline.scores
        metadata["scores"] = scores
    keyed = {f"tokenizer.ggml.{name}": value for name, value in metadata.items()}
    # llama.cpp has no key for this; it knows a few models by name.
    for name, ids in pipeline.stripping.items():
        keyed[f"halfbyte.tokenizer.{name}_token_ids"] = np.array(sorted(ids), np.int32)
    return keyed


def _around_text(path: Path, data: dict[str, Any]) -> tuple[list[int], list[int], list[int]]:
    """The special tokens before and after a text and between two, from the post-processor."""
    around: tuple[list[int], list[int], list[int]] = [], [], []
    for step in steps(path, data, "post_processor", "processors"):
        kind = step["type"]
        if kind == "TemplateProcessing":
            before, *after = _template(path, step, field(path, step, "single", list, _POST))
            pair = _template(path, step, optional(path, step, "pair", [], list))
            around = before, [*chain(*after)], pair[1] if len(pair) == 3 else []
        elif kind in ("BertProcessing", "RobertaProcessing"):
            cls, sep = (_pair(path, step, name) for name in ("cls", "sep"))
            around = [cls], [sep], [sep] if kind == "BertProcessing" else [sep, sep]
        elif kind != "ByteLevel":  # which only changes offsets
            raise UnsupportedError(f"{path}: expected a known post_processor, found {kind[:40]!r}")
    return around


def _around_keys(before: list[int], after: list[int]) -> dict[str, MetadataValue]:
    metadata: dict[str, MetadataValue] = {
        "add_bos_token": bool(before), "add_eos_token": bool(after)
    }  # fmt: skip
    for name, side, ids in (("bos", "before", before), ("eos", "after", after)):
        if len(ids) > 1:  # GGUF's key takes one
            metadata[f"halfbyte.tokenizer.{side}_token_ids"] = np.array(ids, np.int32)
        elif ids:
            metadata[f"{name}_token_id"] = np.uint32(ids[0])
    return metadata


def _between_keys(after: list[int], between: list[int]) -> dict[str, MetadataValue]:
    """Keys for what is between two texts: what is after one, perhaps with another separator."""
    if after and between == [*after, after[-1]]:
        return {"add_sep_token": True, "seperator_token_id": np.uint32(after[-1])}
    if between == after:
        return {"add_sep_token": False} if after else {}
    return {BETWEEN: np.array(between, np.int32)} if between else {}


def _template(path: Path, step: dict[str, Any], items: list[Any]) -> list[list[int]]:
    """Ids before, between and after the texts in a form of a TemplateProcessing."""
    known = field(path, step, "special_tokens", dict, _POST)
    sides: list[list[int]] = [[]]
    for item in items:
        special = item.get("SpecialToken") if isinstance(item, dict) else None
        if not isinstance(special, dict):
            sides.append([])
            continue
        name = field(path, special, "id", str, _POST)
        entry = known.get(name)
        ids = entry.get("ids") if isinstance(entry, dict) else None
        if not isinstance(ids, list) or not all(type(i) is int for i in ids):
            raise FormatError(f"{path}: 'post_processor.special_tokens': no ids for {name[:80]!r}")
        sides[-1] += ids
    for number in chain(*sides):
        if not 0 <= number < MAX_TOKENS:
            raise FormatError(f"{path}: 'post_processor.special_tokens': id {number}")
    return sides


def _pair(path: Path, step: dict[str, Any], name: str) -> int:
    value = step.get(name)
    if not isinstance(value, list) or len(value) != 2 or type(value[1]) is not int:
        raise FormatError(f"{path}: 'post_processor.{name}': expected a token and its id")
    if not 0 <= value[1] < MAX_TOKENS:
        raise FormatError(f"{path}: 'post_processor.{name}': id {value[1]}")
    return int(value[1])
