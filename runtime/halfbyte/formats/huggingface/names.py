"""Hugging Face's names -> GGUF's: config.json becomes metadata, tensors get names and orders.

`naming(config, translators)` translates all that a config.json says about its model: metadata,
tensors that are computed from the config (``rope_freqs.weight``), and for each tensor its name and
the transform of its values, such as the order of rows in which GGUF's Llama rotates them. Names and
metadata are those that llama.cpp reads, so files written from them load there too. Each
architecture's own module fills in a `Translation`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, UnsupportedError, nearest
from halfbyte.formats.huggingface import rope_scaling
from halfbyte.formats.huggingface.config import Keys
from halfbyte.formats.huggingface.wrappers import WRAPPERS, text_model
from halfbyte.formats.model_file import MetadataValue
from halfbyte.formats.transforms import (
    PLUS_ONE,
    SAME,
    TRANSPOSED,
    Transform,
    from_row,
    interleaved,
    regrouped,
    ungrouped,
)
from halfbyte.weights import Tensor

ORIGINAL = "halfbyte.original_config"  # metadata: the text model's config.json
MAX_HEAD = 1 << 12  # elements: tables of frequencies are allocated before weights are checked


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
    layer_names: Mapping[str, str] = field(default_factory=dict)  # where a layer's differ
    dropped: tuple[str, ...] = ()  # beginnings of names of tensors that are not needed
    uneven: tuple[str, ...] = ()  # beginnings of GGUF names that a layer may lack
    numbers: tuple[str, ...] = ()  # tensors of one number in each layer, metadata in GGUF
    idle: tuple[str, ...] = ()  # ends of GGUF names of tensors that are left out where all zero
    rank: bool = False  # the model's head scores pairs of texts
    kept: tuple[int, ...] = ()  # the numbers of layers that run, if not all do

    def rename(self, name: str) -> tuple[str, Transform] | None:
        """GGUF's name of a tensor and its transform; None for a tensor that is not a weight.

        That of one expert's matrix ends with its number: see `formats.huggingface.experts`.

        Raises
        ------
        UnsupportedError
            A tensor that this kind of model does not have.
        """
        plain = _BIAS.sub(".bias", _BARE.sub(r"\1.weight", _OPTIONAL.sub("", name)))
        if (
            _DROPPED.search(plain)
            or is_of_senses(name)
            or (self.tied and plain == "lm_head.weight")
        ):
            return None
        if self.dropped and (plain.startswith(self.dropped) or name.startswith(self.dropped)):
            return None
        match = _LAYER.fullmatch(plain) or _OUTER.fullmatch(plain)
        layer = match is not None and "layer" in match.groupdict()
        found, number = _without_number(match["part"]) if match else ("", "")
        part = self.names.get(f"{found}.{match['kind']}" if match else "", self.names.get(found))
        if layer:
            part = self.layer_names.get(found, part)
        if match is None or part is None:
            raise UnsupportedError(
                f"{self.where}: tensor {name[:80]!r}: model_type {self.kind!r} has no such tensor"
            )
        kind = f"{part}.{_KINDS.get(match['kind'], match['kind'])}"
        if part.endswith("."):
            kind = part[:-1]
        prefix = f"blk.{self._place(int(match['layer']))}." if layer else ""
        if part.startswith("."):  # of the whole model
            prefix, kind = "", kind[1:]
        return prefix + kind + number, self.transforms.get(kind, SAME)

    def _place(self, layer: int) -> int:
        """The place of a layer among those that run."""
        return self.kept.index(layer) if layer in self.kept else layer


# "model." and "transformer." are missing if the model was saved without its head; a text model
# inside another has "language_model." before or after "model.". Mamba's models have "backbone.".
_OPTIONAL = re.compile(
    r"^(model\.)?backbone\.|^((model|transformer|language_model|text_model|gpt_neox|decoder|bert|roberta|distilbert|mpnet|electra"
    r"|ernie|data2vec_text|nomic_bert|gte|encoder|embeddings)\.(?!(weight|bias)$)){1,2}"
)
_LAYER = re.compile(
    r"(?:layers|layer|h|blocks)\.(?P<layer>\d{1,4})\.(?P<part>[\w.]+)\."
    r"(?P<kind>weight|bias|gamma|beta)"
)
_OUTER = re.compile(r"(?P<part>[\w.]+)\.(?P<kind>weight|bias|gamma|beta)")
_EXPERT = re.compile(r"(.*experts)\.(\d{1,4})\.(\w+)")  # with matrices of its own
# Which have no ".weight": stacked experts, vectors of state spaces and RWKV, sinks, factors
_BARE = re.compile(
    r"(experts\.(?:(?:gate_)?up_proj|down_proj|mlp\.w[12])|\.(?:A_log|D|dt_bias|sinks|expert_bias)"
    r"|\.(?:layer_scalar|router\.scale|per_expert_scale|correct_output_scale"
    r"|e_score_correction_bias)|act_fn\.\w+|attn\.(?:x_[rwkvag]|k_k|k_a|r_k)|ffn\.x_k)$"
)
_BIAS = re.compile(r"(?<=_proj)_bias$")  # of stacked experts
_KINDS = {"gamma": "weight", "beta": "bias"}  # of norms, in files of TensorFlow's time
# Tables and masks saved by old versions
_DROPPED = re.compile(
    r"rotary_emb\.inv_freq$|^(position|token_type)_ids$|^h\.\d{1,4}\.attn\.(masked_)?bias$"
)
_SENSES = re.compile(
    r"^(vision_tower|vision_model|audio_tower|embed_vision|embed_audio|multi_modal_projector"
    r"|connector|visual|aligner|projector|image_tower|video_tower|vision_encoder|vision_projection"
    r"|visual_embeddings_table)\.|^image_newline$"
)


def is_of_senses(name: str) -> bool:
    """Whether a tensor is of a model of images or sound, beside that of text."""
    return _SENSES.match(_OPTIONAL.sub("", name)) is not None


def _without_number(part: str) -> tuple[str, str]:
    """A part's name without the number of an expert, and that number in brackets."""
    match = _EXPERT.fullmatch(part)
    return (f"{match[1]}.{match[3]}", f"[{int(match[2])}]") if match else (part, "")


def as_metadata(names: Naming, tensors: dict[str, Tensor]) -> dict[str, MetadataValue]:
    """Take numbers of layers from the tensors, to metadata: an array of one for each layer."""
    metadata: dict[str, MetadataValue] = {}
    for key in names.numbers:
        each = [f"blk.{i}.{key}" for i in range(len(tensors)) if f"blk.{i}.{key}" in tensors]
        metadata[key] = np.array([tensors.pop(name).decode()[0] for name in each], np.float32)
    return metadata


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
        Parts of a tensor's name, such as ``self_attn.q_proj``, -> GGUF's names. One that ends with
        a dot is whole, without ``.weight``; one that begins with a dot is of the whole model. A
        name may end with ``.bias`` where the bias has another.
    tied, tensors, transforms, shapes, layer_names, dropped, uneven, numbers, idle, kept
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
        self.layer_names: Mapping[str, str] = {}
        self.dropped: tuple[str, ...] = ()
        self.uneven: tuple[str, ...] = ()
        self.numbers: tuple[str, ...] = ()
        self.idle: tuple[str, ...] = ()
        self.kept: tuple[int, ...] = ()
        self._rank = False
        self._unprefixed: dict[str, MetadataValue] = {}

    def naming(self) -> Naming:
        """The result, once everything is filled in."""
        metadata: dict[str, MetadataValue] = {"general.architecture": self.architecture}
        metadata |= {f"{self.architecture}.{key}": value for key, value in self.metadata.items()}
        metadata |= self._unprefixed
        return Naming(
            self.keys.where, self.kind, metadata, self.names, self.tied, self.tensors,
            self.transforms, self.shapes, self.layer_names, self.dropped, self.uneven,
            self.numbers, self.idle, self._rank, self.kept,
        )  # fmt: skip

    def keep_original(self) -> None:
        """Keep the config.json as it is: an adapter needs what the other metadata does not say."""
        self._unprefixed[ORIGINAL] = json.dumps(dict(self.keys.values))

    def size(self, key: str) -> int:
        """An integer of the metadata."""
        return int(self.metadata[key])

    def decoder(
        self, architecture: str, head_dim: int | None = None, *, epsilon: str = "rms_norm_eps",
        default_epsilon: float = 1e-6,
    ) -> None:  # fmt: skip
        """Set the sizes of a decoder with rotary positions.

        It has LayerNorm if the key `epsilon` is not Llama's.
        """
        kind = "layer_norm_rms" if epsilon == "rms_norm_eps" else "layer_norm"
        keys, self.architecture = self.keys, architecture
        dim, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
        head_dim = keys.integer("head_dim", head_dim or max(dim // heads, 1), maximum=MAX_HEAD)
        self.metadata |= self._sizes() | {
            "attention.head_count_kv": np.uint32(keys.integer("num_key_value_heads", heads)),
            "attention.key_length": np.uint32(head_dim),
            "attention.value_length": np.uint32(head_dim),
            f"attention.{kind}_epsilon": np.float32(keys.number(epsilon, default_epsilon)),
            "rope.dimension_count": np.uint32(head_dim),
        }

    def _sizes(self) -> dict[str, Any]:
        """Sizes that decoders and encoders name alike."""
        names = {
            "vocab_size": "vocab_size",
            "context_length": "max_position_embeddings",
            "embedding_length": "hidden_size",
            "block_count": "num_hidden_layers",
            "feed_forward_length": "intermediate_size",
            "attention.head_count": "num_attention_heads",
        }
        return {key: np.uint32(self.keys.integer(name)) for key, name in names.items()}

    def encoder(self, architecture: str) -> None:
        """Set the sizes of an encoder with LayerNorm."""
        keys, self.architecture, self.tied = self.keys, architecture, True
        dim, types = keys.integer("hidden_size"), keys.integer("type_vocab_size", 2)
        self.metadata |= {
            **self._sizes(),
            "attention.layer_norm_epsilon": np.float32(keys.number("layer_norm_eps", 1e-12)),
            "attention.causal": False,
        } | self.metadata
        self._unprefixed["tokenizer.ggml.token_type_count"] = np.uint32(types)
        self.shapes["token_types"] = (types, dim)

    def rotates_heads(self, rope: Keys | None = None) -> None:
        """Set rotary positions of an encoder: all elements of a head are rotated."""
        head = self.size("embedding_length") // self.size("attention.head_count")
        self.metadata["rope.dimension_count"] = np.uint32(head)
        self.rope(rope)

    def skip_positions(self, count: int) -> None:
        """Leave out the first rows of the table of positions, of which RoBERTa uses none."""
        rows = self.keys.integer("max_position_embeddings", maximum=1 << 24)
        if rows <= count:
            raise FormatError(
                f"{self.keys.where}: key 'max_position_embeddings': expected more than {count}, "
                f"found {rows}"
            )
        self.metadata["context_length"] = np.uint32(rows - count)
        self.shapes["position_embd"] = (rows, self.keys.integer("hidden_size"))
        self.transforms["position_embd.weight"] = from_row(count)

    def classifies(self) -> bool:
        """Whether the model scores pairs of texts; sets the shapes of its head then."""
        names = map(str, self.keys.list("architectures"))
        if not any(name.endswith("ForSequenceClassification") for name in names):
            return False
        labels = self.keys.inner("id2label")
        count = len(labels.values) if labels.values else self.keys.integer("num_labels", 2)
        if count != 1:
            self.refuse_head(f"{count} labels: expected one, the score of a pair of texts")
        dim = self.size("embedding_length")
        self.shapes |= {"cls": (dim, dim), "cls.output": (count, dim)}
        self._rank = True
        return True

    def refuse_head(self, why: str) -> None:
        """Raise for a head that classifies otherwise."""
        raise UnsupportedError(f"{self.keys.where}: a {self.kind} head with {why}")

    def rope(self, rope: Keys | None = None) -> None:
        """Set base and scaling of rotary positions, and the tensors that scaling needs."""
        rope = rope or self.keys.rope()
        base = rope.number("rope_theta", self.keys.number("rope_theta", 10000.0))
        metadata, factors = rope_scaling.translate(
            rope, base, self.size("context_length"), self.size("rope.dimension_count")
        )
        self.metadata |= metadata
        if factors is not None:
            self.tensors["rope_freqs.weight"] = factors

    def partial_rotation(self, default: float = 1.0, key: str = "partial_rotary_factor") -> None:
        """Set how many elements of a head are rotated."""
        part = self.keys.rope().number(key, self.keys.number(key, default))
        if part > 1:
            raise FormatError(f"{self.keys.where}: key '{key}': expected at most 1, found {part}")
        head = self.size("attention.key_length")
        self.metadata["rope.dimension_count"] = np.uint32(int(head * part))

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
        self.transform(part, interleaved(self.size(heads)))

    def transform(self, part: str, transform: Transform) -> None:
        """Transform the rows of a part's matrix and bias."""
        self.transforms |= {f"{part}.weight": transform, f"{part}.bias": transform}

    def regroup(
        self, part: str, groups: tuple[int, int, int], order: tuple[int, ...] = (0, 1, 2)
    ) -> None:
        """Rows [group, matrix, row] of a part become [matrix, group, row], matrices in `order`."""
        self.transform(part, regrouped(groups, order))

    def split_groups(self, part: str, groups: int, queries: int, head: int) -> None:
        """In a part's groups, each of some queries, a key and a value, queries come first."""
        self.transform(part, ungrouped(groups, queries, head))

    def transpose(self, *parts: str) -> None:
        """Transpose these matrices."""
        self.transforms |= {f"{part}.weight": TRANSPOSED for part in parts}

    def add_one(self, *parts: str) -> None:
        """Add one to these gains, as the original model does."""
        self.transforms |= {f"{part}.weight": PLUS_ONE for part in parts}


class Translator(Protocol):
    """An architecture's translation of its config.json.

    A function ``variant(keys)``, if there is one, returns the name of another translator, for a
    config that has the same `model_type`; or "".
    """

    def translate(self, config: Translation, /) -> None:
        """Fill in the translation."""


_HEADS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
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
    keys = text_model(keys)
    kind = keys.text("model_type")
    if kind not in translators:
        raise UnsupportedError(
            f"{where}: model_type {kind[:80]!r}: expected one of "
            f"{nearest(kind, sorted({*translators, *WRAPPERS}))}"
        )
    translator = translators[kind]
    if hasattr(translator, "variant"):
        translator = translators[translator.variant(keys) or kind]
    heads = getattr(translator, "HEADS", _HEADS)
    for name in keys.list("architectures"):
        if not str(name).endswith(heads):
            expected = "a language model" if heads is _HEADS else f"one that ends in {heads}"
            raise UnsupportedError(f"{where}: architecture {str(name)[:80]!r}: expected {expected}")
    translation = Translation(keys, kind)
    try:
        translator.translate(translation)
    except OverflowError as error:  # of a size that follows from others
        raise FormatError(f"{where}: a size is too large for a GGUF file: {error}") from None
    return translation.naming()
