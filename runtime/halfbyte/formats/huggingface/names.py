"""Hugging Face's names -> GGUF's: config.json becomes metadata, tensors get names and orders.

`naming(config, translators)` translates all that a config.json says about its model: metadata,
tensors that are computed from the config (``rope_freqs.weight``), and for each tensor its name and
the transform of its values, such as the order of rows in which GGUF's Llama rotates them. Names and
metadata are those that llama.cpp reads, so files written from them load there too. Each
architecture's own module fills in a `Translation`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.huggingface.config import Keys
from halfbyte.formats.model_file import MetadataValue

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Transform:
    """A transform of a tensor's values; `apply` takes and returns all of them.

    If `moves`, values are only permuted, and arrays may have any dtype (BF16 as uint16); otherwise
    they are float32.
    """

    name: str  # for people
    apply: Callable[[Array], Array]
    moves: bool = True


MAX_HEAD = 1 << 12  # elements: tables of frequencies are allocated before weights are checked

SAME = Transform("as it is", lambda x: x)
TRANSPOSED = Transform("transposed", lambda x: np.ascontiguousarray(x.T))
PLUS_ONE = Transform("plus one", lambda x: x + np.float32(1), moves=False)


def _interleave(x: Array, heads: int) -> Array:
    if len(x) % (2 * heads):
        raise FormatError(f"{len(x)} rows: expected whole pairs in each of {heads} heads")
    pairs = x.reshape(heads, 2, len(x) // heads // 2, *x.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(x.shape)


def interleaved(heads: int) -> Transform:
    """Rows (j, j + half) of each head become neighbours, which GGUF's Llama rotates together."""
    return Transform(f"rows of {heads} heads interleaved", partial(_interleave, heads=heads))


@dataclass(frozen=True)
class Naming:
    """The content of a config.json under GGUF's names.

    Attributes
    ----------
    metadata : dict
        GGUF keys, including ``general.architecture``; nothing about the tokenizer.
    tensors : dict of str to float32 array
        Tensors that are computed from the config only, such as ``rope_freqs.weight``.
    tied : bool
        The head is the embedding; otherwise ``output.weight`` must be among the tensors.
    """

    where: str
    kind: str
    metadata: dict[str, MetadataValue]
    names: Mapping[str, str]
    tied: bool
    tensors: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    transforms: Mapping[str, Transform] = field(default_factory=dict)  # by the end of a GGUF name
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # exceptions, likewise

    def rename(self, name: str) -> tuple[str, Transform] | None:
        """GGUF's name of a tensor and its transform; None for a tensor that is not a weight.

        Raises
        ------
        UnsupportedError
            A tensor that this kind of model does not have.
        """
        plain = _OPTIONAL.sub("", name)
        if _DROPPED.search(plain) or (self.tied and plain == "lm_head.weight"):
            return None
        match = _LAYER.fullmatch(plain) or _OUTER.fullmatch(plain)
        part = match and self.names.get(match["part"])
        if match is None or part is None:
            raise UnsupportedError(
                f"{self.where}: tensor {name[:80]!r}: model_type {self.kind!r} has no such tensor"
            )
        kind = f"{part}.{match['kind']}"
        prefix = f"blk.{int(match['layer'])}." if "layer" in match.groupdict() else ""
        return prefix + kind, self.transforms.get(kind, SAME)


# "model." and "transformer." are missing if the model was saved without its head; a text model
# inside another has "language_model." before or after "model.".
_OPTIONAL = re.compile(r"^(model\.|transformer\.|language_model\.){1,2}")
_LAYER = re.compile(r"(?:layers|h)\.(?P<layer>\d{1,4})\.(?P<part>[\w.]+)\.(?P<kind>weight|bias)")
_OUTER = re.compile(r"(?P<part>\w+)\.(?P<kind>weight|bias)")
# Tables and masks saved by old versions; parts of a model that are not for text
_DROPPED = re.compile(
    r"rotary_emb\.inv_freq$|^h\.\d{1,4}\.attn\.(masked_)?bias$"
    r"|^(vision_tower|multi_modal_projector)\."
)


class Translation:
    """The translation of a config.json to GGUF's names, filled in by an architecture.

    Attributes
    ----------
    keys : Keys
        Keys of config.json, or of the object in it that describes the text model.
    kind : str
        The `model_type`.
    architecture : str
        GGUF's name.
    metadata : dict
        Values by GGUF's keys without the architecture's name.
    names : mapping
        Parts of a tensor's name, such as ``self_attn.q_proj``, -> GGUF's names.
    tied, tensors, transforms, shapes
        As in :class:`Naming`.
    """

    def __init__(self, keys: Keys, kind: str) -> None:
        self.keys, self.kind, self.architecture = keys, kind, ""
        self.metadata: dict[str, Any] = {}
        self.names: Mapping[str, str] = {}
        self.tied = False
        self.tensors: dict[str, npt.NDArray[np.float32]] = {}
        self.transforms: dict[str, Transform] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def naming(self) -> Naming:
        """The result, once everything is filled in."""
        metadata: dict[str, MetadataValue] = {"general.architecture": self.architecture}
        metadata |= {f"{self.architecture}.{key}": value for key, value in self.metadata.items()}
        return Naming(
            self.keys.where, self.kind, metadata, self.names, self.tied, self.tensors,
            self.transforms, self.shapes,
        )  # fmt: skip

    def size(self, key: str) -> int:
        """An integer of the metadata."""
        return int(self.metadata[key])

    def decoder(self, architecture: str, head_dim: int | None = None) -> None:
        """Set the sizes of a decoder with RMSNorm and rotary positions."""
        keys, self.architecture = self.keys, architecture
        dim, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
        head_dim = keys.integer("head_dim", head_dim or max(dim // heads, 1), maximum=MAX_HEAD)
        self.metadata |= {
            "vocab_size": np.uint32(keys.integer("vocab_size")),
            "context_length": np.uint32(keys.integer("max_position_embeddings")),
            "embedding_length": np.uint32(dim),
            "block_count": np.uint32(keys.integer("num_hidden_layers")),
            "feed_forward_length": np.uint32(keys.integer("intermediate_size")),
            "attention.head_count": np.uint32(heads),
            "attention.head_count_kv": np.uint32(keys.integer("num_key_value_heads", heads)),
            "attention.key_length": np.uint32(head_dim),
            "attention.value_length": np.uint32(head_dim),
            "attention.layer_norm_rms_epsilon": np.float32(keys.number("rms_norm_eps", 1e-6)),
            "rope.dimension_count": np.uint32(head_dim),
        }

    def rope(self, rope: Keys | None = None) -> None:
        """Set base and scaling of rotary positions, and the tensors that scaling needs."""
        rope = rope or self.keys.rope()
        base = rope.number("rope_theta", self.keys.number("rope_theta", 10000.0))
        self.metadata["rope.freq_base"] = np.float32(base)
        scaling = rope.text("rope_type", rope.text("type", "default"))
        if scaling == "linear":
            self.metadata["rope.scaling.type"] = "linear"
            self.metadata["rope.scaling.factor"] = np.float32(rope.number("factor"))
        elif scaling == "llama3":
            factors = _llama3_factors(rope, base, self.size("rope.dimension_count"))
            self.tensors["rope_freqs.weight"] = factors
        elif scaling != "default":
            raise UnsupportedError(
                f"{rope.where}: scaling of rotary positions {scaling[:80]!r}: expected 'default', "
                "'linear' or 'llama3'"
            )

    def windows(self, local: list[bool]) -> None:
        """Set the sliding window of the layers marked in `local`."""
        if any(local) and self.keys.get("sliding_window") is not None:
            window = self.keys.integer("sliding_window")
            self.metadata["attention.sliding_window"] = np.uint32(window)
            if not all(local):
                self.metadata["attention.sliding_window_pattern"] = np.array(local, np.bool_)

    def local_layers(self, otherwise: Callable[[int], bool]) -> list[bool]:
        """Which layers have a sliding window, by `layer_types` or else by a rule."""
        layers = self.keys.integer("num_hidden_layers", maximum=1 << 10)
        types = self.keys.list("layer_types")
        if not types:
            return [otherwise(layer) for layer in range(layers)]
        known = ("sliding_attention", "full_attention")
        if len(types) != layers or any(t not in known for t in types):
            raise FormatError(f"{self.keys.where}: key 'layer_types': expected {layers} of {known}")
        return [t == "sliding_attention" for t in types]

    def interleave(self, part: str, heads: str) -> None:
        """Interleave the rows of a part's heads; `heads` is the metadata key of their number."""
        transform = interleaved(self.size(heads))
        self.transforms |= {f"{part}.weight": transform, f"{part}.bias": transform}

    def transpose(self, *parts: str) -> None:
        """Transpose these matrices."""
        self.transforms |= {f"{part}.weight": TRANSPOSED for part in parts}

    def add_one(self, *parts: str) -> None:
        """Add one to these gains, as the original model does."""
        self.transforms |= {f"{part}.weight": PLUS_ONE for part in parts}


def _llama3_factors(rope: Keys, base: float, rotated: int) -> npt.NDArray[np.float32]:
    """The divisor of each frequency, [rotated / 2].

    1 if `original` positions are more than `high` wavelengths, `factor` if they are fewer than
    `low`; in between, the inverse is linear. Source: Llama 3.1's reference code.
    """
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    factor = rope.number("factor")
    original = rope.integer("original_max_position_embeddings")
    if low >= high:
        raise FormatError(f"{rope.where}: low_freq_factor {low}: expected below {high}")
    frequency = base ** (-np.arange(rotated // 2, dtype=np.float64) * 2 / rotated)
    wavelengths = original * frequency / (2 * math.pi)
    share = np.clip((wavelengths - low) / (high - low), 0, 1)
    return (1 / ((1 - share) / factor + share)).astype(np.float32)


class Translator(Protocol):
    """An architecture's translation of its config.json."""

    def translate(self, config: Translation, /) -> None:
        """Fill in the translation."""


Translators = Mapping[str, Translator]  # by `model_type`


def naming(
    config: Mapping[str, Any], translators: Translators, where: str = "config.json"
) -> Naming:
    """Translate a parsed config.json.

    Parameters
    ----------
    config : mapping
        The file's content.
    translators : mapping
        The architectures that are known.
    where : str
        The file's name, for messages.

    Raises
    ------
    FormatError, UnsupportedError
        A key is missing, has a wrong value, or asks for something that is not supported.
    """
    keys = Keys(config, where)
    if keys.get("quantization_config") is not None:
        raise UnsupportedError(
            f"{where}: key 'quantization_config': expected weights that are not quantized"
        )
    kind = keys.text("model_type")
    if kind not in translators:
        raise UnsupportedError(
            f"{where}: model_type {kind[:80]!r}: expected one of {sorted(translators)}"
        )
    for name in keys.list("architectures"):
        if not str(name).endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
            raise UnsupportedError(
                f"{where}: architecture {str(name)[:80]!r}: expected a language model"
            )
    translation = Translation(keys, kind)
    translators[kind].translate(translation)
    return translation.naming()
