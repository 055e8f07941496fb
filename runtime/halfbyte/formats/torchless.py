"""Reader of torchless' ``.bin`` (https://github.com/ryanssenn/torchless, export_mistral.py).

Layout: u64 length of the header; the header, a JSON object padded with zeros so that it ends at a
multiple of 64; the tensors, each at such a multiple. The JSON has ``metadata`` (sizes, as
strings), ``tokenizer`` (``vocab``: token -> id; ``merges``: "left right" in order of rank) and
``tensors``: Hugging Face's name -> {dtype, shape, offset}, offsets from the end of the header.
An ``int8`` tensor also has ``scale_offset`` and ``scale_size``: one float32 for every 64 weights,
by which they were multiplied.

The models are Mistral's; rows of q and k are in Hugging Face's order.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import FormatError
from halfbyte.formats.checkpoints import MAX_ELEMENTS, Checkpoint
from halfbyte.formats.grouped import Groups, grouped_notes, grouped_tensor
from halfbyte.formats.huggingface.folder import model_tensors
from halfbyte.formats.huggingface.names import Translators, naming
from halfbyte.formats.json_file import field
from halfbyte.formats.mapped import Pages, refuse_overlaps
from halfbyte.formats.model_file import MetadataValue, ModelFile
from halfbyte.formats.tokens import fit_vocabulary, sentencepiece_metadata
from halfbyte.weights import F32, U8

ALIGNMENT = 64
GROUP = 64  # int8 weights that share a scale

# metadata's names -> config.json's
_INTEGERS = {
    "hidden_size": "hidden_size", "intermediate_size": "intermediate_size",
    "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads", "vocab_size": "vocab_size",
    "max_position_embeddings": "max_position_embeddings", "sliding_window": "sliding_window",
}  # fmt: skip
_NUMBERS = {"rope_theta": "rope_theta", "norm_eps": "rms_norm_eps"}
_NOTHING = ("None", "0")  # no sliding window
_INTEGER, _NUMBER = re.compile(r"\d{1,12}"), re.compile(r"\d{1,12}(\.\d{1,20})?(e[+-]?\d{1,3})?")


def is_torchless(header: dict[str, Any]) -> bool:
    """Whether a JSON header is this format's; in safetensors every entry is a tensor."""
    tensors = header.get("tensors")
    return isinstance(tensors, dict) and "data_offsets" not in tensors


def read_torchless(
    path: Path, pages: Pages, header: dict[str, Any], start: int, translators: Translators
) -> ModelFile:
    """Parse a torchless file: tensors are views of its pages, int8 groups become Q8_0 on demand.

    Parameters
    ----------
    header, start
        From `safetensors.read_json_header`.
    translators
        As for `names.naming`.

    Raises
    ------
    FormatError
        Truncated, or sizes that contradict each other.
    """
    if start % ALIGNMENT:
        raise FormatError(f"{path}: header ends at {start}, expected a multiple of {ALIGNMENT}")
    weights = _weights(path, pages, field(path, header, "tensors", dict), start)
    names = naming(_config(path, header, weights), translators, str(path))
    tensors, notes = model_tensors(str(path), names, weights), grouped_notes(weights.tensors)
    tokenizer = _tokenizer(path, field(path, header, "tokenizer", dict))
    fit_vocabulary(str(path), tokenizer, tensors["token_embd.weight"].shape[0], notes)
    name = path.stem.encode(errors="replace").decode()
    metadata = {**names.metadata, "general.name": name, **tokenizer}
    file = ModelFile(path, "torchless", metadata, tensors, notes, weights.parts)
    file.forget()  # the scales were read to check them
    return file


def _config(path: Path, header: dict[str, Any], weights: Checkpoint) -> dict[str, Any]:
    """The same settings as a config.json."""
    fields = field(path, header, "metadata", dict)
    config: dict[str, Any] = {
        "model_type": "mistral",
        "hidden_act": fields.get("act_type", "silu"),
        "tie_word_embeddings": "lm_head.weight" not in weights.tensors,
    }
    for names, form, kind in ((_INTEGERS, _INTEGER, int), (_NUMBERS, _NUMBER, float)):
        for name, key in names.items():
            value = field(path, fields, name, str, "metadata.")
            if name == "sliding_window" and value in _NOTHING:
                continue
            if form.fullmatch(value) is None:
                raise FormatError(
                    f"{path}: 'metadata.{name}': expected a number in a string, found {value!r:.80}"
                )
            config[key] = kind(value)
    return config


def _weights(path: Path, pages: Pages, entries: dict[str, Any], start: int) -> Checkpoint:
    whole = np.frombuffer(pages, np.uint8)[start:]
    weights = Checkpoint("torchless", parts={path: pages})
    spans: list[tuple[int, int, str]] = []

    def part(name: str, entry: dict[str, Any], key: str, size: int) -> U8:
        offset = field(path, entry, key, int, f"tensors.{name[:80]}.")
        if offset < 0 or offset % ALIGNMENT or offset + size > whole.size:
            raise FormatError(
                f"{path}: tensor {name!r:.80}: {size} bytes expected at {key} {offset} (a multiple "
                f"of {ALIGNMENT}), the file has {whole.size} after its header"
            )
        spans.append((offset, offset + size, name))
        return whole[offset : offset + size]

    for name in entries:
        entry = field(path, entries, name, dict, "tensors.")
        shape, dtype = _shape(path, name, entry), field(path, entry, "dtype", str)
        count = math.prod(shape)
        if dtype == "f32":
            weights.add(name, F32, shape, part(name, entry, "offset", 4 * count))
        elif dtype != "int8":
            weights.unusable[name] = f"dtype {dtype!r:.40}, expected 'f32' or 'int8'"
        elif count % GROUP or entry.get("scale_size") != count // GROUP:
            raise FormatError(
                f"{path}: tensor {name!r:.80}: {count} weights: expected groups of {GROUP}, and "
                "'scale_size' as many"
            )
        else:
            q = part(name, entry, "offset", count).view(np.int8)
            scales = part(name, entry, "scale_offset", count // GROUP * 4).view("<f4")
            groups = Groups(q, scales, shape[-1], divide=True)
            weights.tensors[name] = grouped_tensor(str(path), name, shape, groups)
    refuse_overlaps(path, spans)
    return weights


def _shape(path: Path, name: str, entry: dict[str, Any]) -> tuple[int, ...]:
    shape = field(path, entry, "shape", list, f"tensors.{name[:80]}.")
    sizes = all(type(n) is int and 0 < n <= MAX_ELEMENTS for n in shape)
    if not 1 <= len(shape) <= 4 or not sizes:
        raise FormatError(f"{path}: tensor {name!r:.80}: expected a 'shape' of 1 to 4 numbers")
    return tuple(shape)


def _tokenizer(path: Path, fields: dict[str, Any]) -> dict[str, MetadataValue]:
    """SentencePiece BPE with byte fallback: pieces that are merged earlier have higher scores."""
    vocab = field(path, fields, "vocab", dict, "tokenizer.")
    merges = field(path, fields, "merges", list, "tokenizer.")
    tokens = {number: token for token, number in vocab.items() if type(number) is int}
    if not vocab or tokens.keys() != set(range(len(vocab))):
        last = max(tokens, default=0)
        raise FormatError(f"{path}: 'tokenizer.vocab': expected ids 0 to {last}, once each")
    pieces = [tokens[number].encode(errors="replace").decode() for number in range(len(vocab))]
    scores = np.zeros(len(vocab), np.float32)
    for rank, merge in enumerate(merges):
        joined = "".join(merge.split(" ")) if isinstance(merge, str) else None
        if joined not in vocab:
            raise FormatError(
                f"{path}: 'tokenizer.merges': {merge!r:.80} makes no token of the vocabulary"
            )
        if not scores[vocab[joined]]:
            scores[vocab[joined]] = -1 - rank
    for special in ("<unk>", "<s>", "</s>"):
        if special not in vocab:
            raise FormatError(f"{path}: 'tokenizer.vocab': expected {special!r}, found nothing")
    return sentencepiece_metadata(
        pieces, scores, unknown=vocab["<unk>"], bos=vocab["<s>"], eos=vocab["</s>"]
    )
