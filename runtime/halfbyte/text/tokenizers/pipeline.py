"""A tokenizer.json, run step by step as by PyPI's `tokenizers`.

`tokenizer.ggml.*` names whole pipelines. `halfbyte.tokenizer.pipeline` has the steps of those for
which GGUF has no name, or only that of a similar one, whose keys are then stored too, for
llama.cpp. Without such keys `tokenizer.ggml.model` is "huggingface", which llama.cpp refuses.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.json_file import optional, parse_json
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.tokens import (
    CONTROL,
    MERGES,
    PIPELINE,
    PIPELINE_IDS,
    SCORES,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
)  # fmt: skip
from halfbyte.text.tokenizers import normalizers, splitting
from halfbyte.text.tokenizers.added import AddedTokens
from halfbyte.text.tokenizers.base import CACHED_LENGTH, CACHED_WORDS, BaseTokenizer, Piece, Span
from halfbyte.text.tokenizers.decoders import make_decoder
from halfbyte.text.tokenizers.subwords import make_model
from halfbyte.text.tokenizers.vocabulary import SPACE, Vocabulary


class PipelineTokenizer(BaseTokenizer):
    """See the module."""

    def __init__(self, file: ModelFile) -> None:
        path = file.path
        vocabulary = Vocabulary.from_file(file, "huggingface")
        super().__init__(vocabulary)
        text = file.metadata[PIPELINE]
        if not isinstance(text, str):
            raise FormatError(f"{path}: metadata '{PIPELINE}': expected a string")
        data = parse_json(path, text.encode())
        steps = {
            name: _steps(file, data, name) for name in ("normalizer", "pre_tokenizer", "decoder")
        }
        self._normalizers = normalizers.make_normalizers(path, steps["normalizer"])
        self._splitters = splitting.make_splitters(path, steps["pre_tokenizer"])
        self._decoder = make_decoder(path, steps["decoder"])
        self.strips_space = self._decoder.strips_space
        self.strips_end = self._decoder.strips_end
        added = {name: _ids(file, data, name, self.vocab_size) for name in PIPELINE_IDS}
        self._single_word = added["single_word"]
        types = vocabulary.types.tolist()
        ids = {
            token: i
            for i, (token, kind) in enumerate(zip(vocabulary.tokens, types, strict=True))
            if kind != UNUSED and i not in added["only_added"]
        }
        options = optional(path, data, "model", {}, dict)
        kind = options.get("type")
        by_rank = options.get("by_rank") is True  # tokens are merged in their order
        merges = _merges(vocabulary) if kind == "BPE" and not by_rank else []
        self._model = make_model(path, options, ids, merges, _scores(vocabulary, kind))
        self._cached_model = lru_cache(CACHED_WORDS)(self._model)
        self._control = added["special"]
        self._raw = self._added_tokens(added["added"] - added["normalized"], normalize=False)
        self._normal = self._added_tokens(added["added"] & added["normalized"], normalize=True)
        self.before = self._around("bos", "before")
        self.after = self._around("eos", "after")

    def _added_tokens(self, ids: set[int], normalize: bool) -> AddedTokens:
        tokens: dict[str, int] = {}
        for i in sorted(ids):
            token = self.vocabulary.tokens[i]
            if normalize:
                token = normalizers.apply(self._normalizers, token)
            if token:
                tokens.setdefault(token, i)
        return AddedTokens(tokens, self._single_word, self._lstrip, self._rstrip)

    def _hidden(self, parse_special: bool) -> Container[int]:
        return () if parse_special else self._control

    def _around(self, role: str, side: str) -> list[int]:
        """Special tokens before or after a text."""
        if not self.vocabulary.flag(f"add_{role}_token", False):
            return []
        ids = self.vocabulary.listed(f"halfbyte.tokenizer.{side}_token_ids")
        if ids is not None:
            return ids
        names = {"bos": ("bos", "cls"), "eos": ("eos", "seperator")}[role]
        special = self.vocabulary.ids
        return [special[name] for name in names if name in special][:1]

    def token_bytes(self, token: int) -> bytes:
        if self._check(token) in (CONTROL, UNKNOWN):
            return b""
        return self._decoder.content(self.vocabulary.tokens[token])

    def first_bytes(self, token: int) -> bytes:
        first = self._decoder.first
        if first is None:
            return super().first_bytes(token)
        return first(self.vocabulary.tokens[token])

    def _words(self, text: str) -> list[str]:
        return [piece for piece, _, _ in splitting.split(self._splitters, text, None, True)]

    def _pieces(self, word: str) -> list[Piece]:
        return self._model(word)

    def _encode_parts(self, text: str, parse_special: bool) -> Iterator[int]:
        hidden = self._hidden(parse_special)
        for start, end, token in self._raw.cut(text, hidden):
            if token is not None:
                yield token
                continue
            normal = normalizers.apply(self._normalizers, text[start:end])
            for first, last, inner in self._normal.cut(normal, hidden):
                if inner is not None:
                    yield inner
                    continue
                at_start = start == first == 0
                parts = splitting.split(self._splitters, normal[first:last], None, at_start)
                for word, _, _ in parts:
                    model = self._cached_model if len(word) <= CACHED_LENGTH else self._model
                    yield from [i for i, _, _ in model(word)]

    def _trace_parts(self, text: str, parse_special: bool) -> Iterator[Piece]:
        hidden = self._hidden(parse_special)
        for start, end, token in self._raw.cut(text, hidden):
            if token is not None:
                yield token, start, end
                continue
            normal, spans = normalizers.trace(self._normalizers, text[start:end])
            spans = [(a + start, b + start) for a, b in spans]
            for first, last, inner in self._normal.cut(normal, hidden):
                if inner is not None:
                    yield inner, spans[first][0], spans[last - 1][1]
                else:
                    yield from self._trace_words(
                        normal[first:last], spans[first:last], start == first == 0
                    )

    def _trace_words(self, text: str, spans: list[Span], first: bool) -> Iterator[Piece]:
        for word, origins, _ in splitting.split(self._splitters, text, spans, first):
            for token, start, end in self._model(word):
                if origins:
                    yield token, origins[start][0], origins[end - 1][1]


def gemma4(file: ModelFile) -> ModelFile:
    """A GGUF file with Gemma 4's tokenizer, and the steps that llama.cpp runs for this name.

    Spaces are marked, and the characters of a whole text are merged; characters without a token
    become bytes.
    """
    vocabulary = Vocabulary.from_file(file, "gemma4")
    types = list(enumerate(vocabulary.types.tolist()))
    unknown = vocabulary.ids.get("unknown")
    model: dict[str, Any] = {"type": "BPE", "byte_fallback": True, "fuse_unk": True}
    if unknown is not None:
        model["unk_token"] = vocabulary.tokens[unknown]
    space, mark = {"String": " "}, {"String": SPACE}
    steps = {
        "model": model,
        "normalizer": [{"type": "Replace", "pattern": space, "content": SPACE}],
        "decoder": [
            {"type": "Replace", "pattern": mark, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ],
        "added": [i for i, kind in types if kind in (CONTROL, USER_DEFINED)],
        "special": [i for i, kind in types if kind == CONTROL],
    }
    return replace(file, metadata={**file.metadata, PIPELINE: json.dumps(steps)})


def _steps(file: ModelFile, data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    steps = optional(file.path, data, name, [], list)
    if not all(isinstance(step, dict) for step in steps):
        raise FormatError(f"{file.path}: metadata '{PIPELINE}': '{name}': expected objects")
    return list(steps)


def _ids(file: ModelFile, data: dict[str, Any], name: str, count: int) -> set[int]:
    ids = optional(file.path, data, name, [], list)
    if not all(type(i) is int and 0 <= i < count for i in ids):
        raise FormatError(f"{file.path}: metadata '{PIPELINE}': '{name}': expected ids of tokens")
    return set(ids)


def _merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    own = MERGES in vocabulary.file.metadata
    merges = vocabulary.strings(MERGES) if own else vocabulary.merges
    parts = (merge.partition("\0" if own else " ") for merge in merges)
    return [(left, right) for left, _, right in parts]


def _scores(vocabulary: Vocabulary, kind: object) -> list[float]:
    if kind != "Unigram":
        return []
    exact = vocabulary.file.metadata.get(SCORES)
    if exact is None:
        return vocabulary.scores.tolist()  # type: ignore[no-any-return]
    if (
        not isinstance(exact, np.ndarray)
        or exact.dtype != np.float64
        or len(exact) != len(vocabulary.tokens)
        or not np.all(np.isfinite(exact))
    ):
        raise FormatError(
            f"{vocabulary.file.path}: metadata '{SCORES}': expected {len(vocabulary.tokens)} "
            "finite numbers"
        )
    return exact.tolist()  # type: ignore[no-any-return]
