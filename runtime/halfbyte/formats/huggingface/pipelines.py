"""The pipelines of tokenizer.json for which GGUF has a name.

=========  =========================  ==========================================================
GGUF       model                      recognised by
=========  =========================  ==========================================================
``gpt2``   BPE over bytes             a ByteLevel pre-tokenizer; its split has a name
``llama``  SentencePiece's BPE        U+2581 for spaces, by normalizer or pre-tokenizer
``t5``     Unigram                    U+2581 for spaces, optionally a precompiled charsmap
``bert``   WordPiece                  BertNormalizer and BertPreTokenizer
=========  =========================  ==========================================================
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import json_file
from halfbyte.formats.huggingface.sentencepiece_model import read_sentencepiece
from halfbyte.formats.huggingface.vocabulary import merges_of, pieces_of, scored_pieces
from halfbyte.formats.json_file import kind_of, optional
from halfbyte.formats.model_file import MetadataValue
from halfbyte.formats.pretokenizers import DIGIT, DIGITS, GPT2, find_name
from halfbyte.formats.tokens import BYTE, BYTE_TOKEN, CONTROL, LETTERS, NORMAL, UNKNOWN

SPACE = "\u2581"
_MAX_WORD = 100  # characters of a word, beyond which WordPiece does not know it


@dataclass
class Pipeline:
    """A vocabulary that is being built, and GGUF's metadata about its use."""

    model: str
    pieces: dict[str, int]
    metadata: dict[str, MetadataValue]  # without the prefix tokenizer.ggml.
    types: dict[int, int] = field(default_factory=dict)  # by id, of tokens that are not normal
    scores: npt.NDArray[np.float32] | None = None
    stripping: dict[str, list[int]] = field(default_factory=dict)  # lstrip, rstrip -> ids
    exact: bool = False  # GGUF's keys describe it completely
    normalizes: bool = False
    spell: Callable[[str, int], str] = lambda token, kind: token  # GGUF's spelling, by type


def read_pipeline(path: Path, data: dict[str, Any], beside: Path | None) -> Pipeline:
    """The pipeline of a tokenizer.json; `beside` is a tokenizer.model with the scores."""
    model = json_file.field(path, data, "model", dict)
    kind = model_kind(path, data)
    before = [step["type"] for step in steps(path, data, "pre_tokenizer", "pretokenizers")]
    if kind == "BPE" and "ByteLevel" in before:
        return _byte_level(path, data, model)
    if kind == "BPE":
        return _sentencepiece_bpe(path, data, model, beside)
    if kind == "Unigram":
        return _unigram(path, data, model)
    if kind == "WordPiece":
        return _wordpiece(path, data, model)
    raise UnsupportedError(f"{path}: expected model BPE, Unigram or WordPiece, found {kind[:80]!r}")


def model_kind(path: Path, data: dict[str, Any]) -> str:
    """The type of a tokenizer.json's model."""
    model = json_file.field(path, data, "model", dict)
    return optional(path, model, "type", _kind(model), str, "model.")


def steps(path: Path, data: dict[str, Any], name: str, inner: str) -> list[dict[str, Any]]:
    """The steps of a normalizer, pre-tokenizer or post-processor, with Sequences flattened."""
    flat: list[dict[str, Any]] = []
    waiting = [data.get(name)]
    while waiting:
        step = waiting.pop()
        if step is None:
            continue
        if not isinstance(step, dict):
            raise FormatError(f"{path}: '{name}': expected an object, found {kind_of(step)}")
        if json_file.field(path, step, "type", str, f"{name}.") == "Sequence":
            waiting += reversed(json_file.field(path, step, inner, list, f"{name}."))
        else:
            flat.append(step)
    return flat


def _kind(model: dict[str, Any]) -> str:
    """The type of a model in old files, which do not name it."""
    if "merges" in model:
        return "BPE"
    return "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"


def _byte_level(path: Path, data: dict[str, Any], model: dict[str, Any]) -> Pipeline:
    normal = [step["type"] for step in steps(path, data, "normalizer", "normalizers")]
    if normal not in ([], ["NFC"]):
        raise UnsupportedError(
            f"{path}: normalizer {normal} before byte-level BPE: expected none or NFC"
        )
    _refuse_variants(path, model, byte_fallback=False)
    patterns, prefix = _split(path, data)
    ignore = optional(path, model, "ignore_merges", False, bool, "model.")
    name = find_name(patterns, bool(normal), ignore)
    if name is None:
        raise UnsupportedError(
            f"{path}: pre_tokenizer {list(patterns)}, normalizer {normal}, ignore_merges {ignore}: "
            "halfbyte does not know this combination, and would make wrong tokens of some texts"
        )
    pieces = pieces_of(path, model)
    merges = [" ".join(pair) for pair in merges_of(path, model, pieces)]
    metadata: dict[str, MetadataValue] = {"pre": name, "merges": merges}
    if prefix:
        metadata["add_space_prefix"] = True
    exact = set(LETTERS.values()).issubset(pieces)  # originals differ in bytes without a token
    return Pipeline("gpt2", pieces, metadata, exact=exact, normalizes=bool(normal))


def _split(path: Path, data: dict[str, Any]) -> tuple[tuple[str, ...], bool]:
    """The regular expressions of a pre-tokenizer, and whether it adds a space before a text."""
    patterns: list[str] = []
    prefix = False
    for step in steps(path, data, "pre_tokenizer", "pretokenizers"):
        kind = step["type"]
        if kind == "ByteLevel":
            prefix = optional(path, step, "add_prefix_space", True, bool, "pre_tokenizer.")
            if optional(path, step, "use_regex", True, bool, "pre_tokenizer."):
                patterns.append(GPT2)
        elif kind == "Digits":
            single = optional(path, step, "individual_digits", False, bool, "pre_tokenizer.")
            patterns.append(DIGIT if single else DIGITS)
        elif kind == "Split" and _isolates(step):
            patterns.append(step["pattern"]["Regex"])
        else:
            raise UnsupportedError(f"{path}: pre_tokenizer {str(step)[:300]}: is not known")
    return tuple(patterns), prefix


def _isolates(step: dict[str, Any]) -> bool:
    """Whether matches of a regular expression, and the text between them, become pieces.

    Removing text that does not match is equivalent for expressions that match everything; GGUF has
    no names for others of this form.
    """
    pattern = step.get("pattern")
    regex = pattern.get("Regex") if isinstance(pattern, dict) else None
    how = (step.get("behavior"), step.get("invert", False))
    return isinstance(regex, str) and how in (("Isolated", False), ("Removed", True))


def _sentencepiece_bpe(
    path: Path, data: dict[str, Any], model: dict[str, Any], beside: Path | None
) -> Pipeline:
    metadata = _spaces(path, data)
    if beside is not None:
        return sentencepiece_pipeline(read_sentencepiece(beside))
    _refuse_variants(path, model, byte_fallback=True)
    pieces = pieces_of(path, model)
    types = _byte_types(pieces)
    unknown = model.get("unk_token")
    if isinstance(unknown, str) and unknown in pieces:
        types[pieces[unknown]] = UNKNOWN
        metadata["unknown_token_id"] = np.uint32(pieces[unknown])
    scores = _scores_of_merges(path, pieces, types, merges_of(path, model, pieces))
    return Pipeline("llama", pieces, {"pre": "default", **metadata}, types, scores)


def sentencepiece_pipeline(metadata: dict[str, MetadataValue]) -> Pipeline:
    """The pipeline of a tokenizer.model, so that tokens can be added to it."""
    values = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}
    name, tokens, types = (values.pop(key) for key in ("model", "tokens", "token_type"))
    scores = values.pop("scores")
    return Pipeline(
        str(name),
        {str(token): index for index, token in enumerate(tokens)},  # type: ignore[arg-type]
        values,
        {index: int(kind) for index, kind in enumerate(np.asarray(types)) if kind != NORMAL},
        np.asarray(scores, np.float32),
    )


def _scores_of_merges(
    path: Path, pieces: dict[str, int], types: dict[int, int], merges: list[tuple[str, str]]
) -> npt.NDArray[np.float32]:
    """Scores by which SentencePiece merges in the order of `merges`.

    SentencePiece merges any two pieces whose union is a piece, in order of the union's score, so
    all such pairs must be among the merges.
    """
    scores = np.full(max(pieces.values(), default=-1) + 1, -float(len(merges)), np.float32)
    listed = set(merges)
    ranks: dict[str, int] = {}
    for rank, (left, right) in enumerate(merges):
        ranks.setdefault(left + right, rank)
    for union, rank in ranks.items():
        scores[pieces[union]] = -float(rank)
    for piece, index in pieces.items():
        if types.get(index, NORMAL) != NORMAL or (len(piece) > 2 and piece not in ranks):
            continue
        for at in range(1, len(piece)):
            pair = piece[:at], piece[at:]
            if pair not in listed and pair[0] in pieces and pair[1] in pieces:
                raise UnsupportedError(
                    f"{path}: 'model.merges': {pair} is not among them, so they are not those of a "
                    "SentencePiece vocabulary, the only BPE over characters that is supported"
                )
    return scores


def _unigram(path: Path, data: dict[str, Any], model: dict[str, Any]) -> Pipeline:
    pieces, scores = scored_pieces(path, model)
    with np.errstate(over="ignore"):
        rounded = np.array(scores, np.float32)
    for index in np.flatnonzero(~np.isfinite(rounded))[:1].tolist():
        raise FormatError(f"{path}: 'model.vocab[{index}]': score {scores[index]} is not finite")
    fallback = optional(path, model, "byte_fallback", False, bool, "model.")
    types = _byte_types(pieces) if fallback else {}
    metadata = {"pre": "default", **_spaces(path, data)}
    unknown = model.get("unk_id")
    if type(unknown) is int and 0 <= unknown < len(pieces):
        types[unknown] = UNKNOWN
        metadata["unknown_token_id"] = np.uint32(unknown)
    return Pipeline("t5", pieces, metadata, types, rounded)


def _spaces(path: Path, data: dict[str, Any]) -> dict[str, MetadataValue]:
    """SentencePiece's settings for a text, from the normalizer and the pre-tokenizer."""
    metadata: dict[str, MetadataValue] = {
        "add_space_prefix": False, "remove_extra_whitespaces": False
    }  # fmt: skip
    marked = False  # spaces become U+2581
    for step in steps(path, data, "normalizer", "normalizers"):
        kind, pattern, content = step["type"], step.get("pattern"), step.get("content")
        if kind == "Precompiled":
            metadata["precompiled_charsmap"] = _charsmap(path, step)
        elif kind == "Prepend" and step.get("prepend") == SPACE:
            metadata["add_space_prefix"] = True
        elif kind == "Replace" and pattern == {"String": " "} and content == SPACE:
            marked = True
        elif kind == "Replace" and pattern == {"Regex": " {2,}"} and content in (" ", SPACE):
            metadata["remove_extra_whitespaces"] = True
        elif kind != "Strip":  # belongs to removing whitespace
            raise UnsupportedError(f"{path}: normalizer {str(step)[:300]}: is not known")
    for step in steps(path, data, "pre_tokenizer", "pretokenizers"):
        kind = step["type"]
        if kind == "WhitespaceSplit":
            metadata["remove_extra_whitespaces"] = True
        elif kind == "Metaspace" and step.get("replacement") == SPACE:
            marked = True
            old = optional(path, step, "add_prefix_space", True, bool, "pre_tokenizer.")
            scheme = step.get("prepend_scheme", "always" if old else "never")
            metadata["add_space_prefix"] = scheme != "never"
        elif kind != "Split" or step.get("pattern") != {"String": " "}:  # no spaces are left
            raise UnsupportedError(f"{path}: pre_tokenizer {str(step)[:300]}: is not known")
    if not marked:
        raise UnsupportedError(f"{path}: a model over characters that does not mark spaces")
    return metadata


def _charsmap(path: Path, step: dict[str, Any]) -> npt.NDArray[np.uint8]:
    text = json_file.field(path, step, "precompiled_charsmap", str, "normalizer.")
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
    except (binascii.Error, ValueError):
        raise FormatError(f"{path}: 'normalizer.precompiled_charsmap': not base64") from None


def _wordpiece(path: Path, data: dict[str, Any], model: dict[str, Any]) -> Pipeline:
    normal = steps(path, data, "normalizer", "normalizers")
    before = [step["type"] for step in steps(path, data, "pre_tokenizer", "pretokenizers")]
    if [step["type"] for step in normal] != ["BertNormalizer"] or before != ["BertPreTokenizer"]:
        raise UnsupportedError(f"{path}: WordPiece without BERT's normalizer and pre-tokenizer")
    wanted = (
        (normal[0], "normalizer.", "clean_text", True),
        (normal[0], "normalizer.", "handle_chinese_chars", True),
        (model, "model.", "continuing_subword_prefix", "##"),
        (model, "model.", "max_input_chars_per_word", _MAX_WORD),
    )
    for parent, where, name, value in wanted:
        if parent.get(name, value) != value:
            raise UnsupportedError(
                f"{path}: '{where}{name}': expected {value!r}, found {str(parent[name])[:40]!r}"
            )
    lowercase = optional(path, normal[0], "lowercase", True, bool, "normalizer.")
    strip = optional(path, normal[0], "strip_accents", lowercase, bool, "normalizer.")
    pieces = pieces_of(path, model)
    unknown = json_file.field(path, model, "unk_token", str, "model.")
    if unknown not in pieces:
        raise FormatError(f"{path}: 'model.unk_token': {unknown!r} is not in the vocabulary")
    metadata: dict[str, MetadataValue] = {
        "pre": "default",
        "unknown_token_id": np.uint32(pieces[unknown]),
        "normalizer.lowercase": lowercase,
        "normalizer.strip_accents": strip,
    }
    types = {pieces[unknown]: CONTROL}
    return Pipeline(
        "bert", pieces, metadata, types, exact=True, normalizes=True, spell=_phantom_space
    )


def _phantom_space(token: str, kind: int) -> str:
    """llama.cpp's spelling of WordPiece, which marks the beginning of a word, not what follows."""
    if kind != NORMAL or (token.startswith("[") and token.endswith("]")):
        return token
    return token[2:] if token.startswith("##") else SPACE + token


def _byte_types(pieces: dict[str, int]) -> dict[int, int]:
    return {index: BYTE for token, index in pieces.items() if BYTE_TOKEN.fullmatch(token)}


def _refuse_variants(path: Path, model: dict[str, Any], byte_fallback: bool) -> None:
    """Refuse options that make this another kind of BPE."""
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise UnsupportedError(f"{path}: 'model.{name}': {str(model[name])[:40]!r}")
    if not byte_fallback and model.get("byte_fallback"):
        raise UnsupportedError(f"{path}: 'model.byte_fallback' in a model over bytes")
