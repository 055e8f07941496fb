"""What Gemma 3n and Gemma 4 share: an input for each layer, and layers without keys and values.

A token has an embedding in every layer, all of them side by side in a row of
``per_layer_token_embd``. The last layers attend to the keys and values of the last layer before
them of their kind, with or without a window. Sizes differ by layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.program import Program
from halfbyte.errors import FormatError
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.transforms import padded
from halfbyte.text.architectures import _decoder
from halfbyte.text.architectures._decoder import Decoder, RotaryConfig
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures.llama import NAMES as LLAMA
from halfbyte.text.architectures.qwen3 import HEAD_NORMS

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.config import Keys as ConfigKeys
    from halfbyte.formats.huggingface.names import Translation

NAMES = LLAMA | HEAD_NORMS | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}  # fmt: skip
_UNSHARED = ("attn_k", "attn_v")  # beginnings of names


@dataclass(frozen=True)
class Config(RotaryConfig):
    """Hyperparameters of all layers.

    Attributes
    ----------
    each : tuple of RotaryConfig
        The sizes of each layer.
    sources : tuple of int
        The layer whose keys and values each layer reads: itself, or one before it.
    inputs : int
        Elements of a layer's input, 0 for none.
    local_base : float
        Base of rotation in layers with a window.
    softcap : float
        Of logits, 0 for none.
    spare : tuple of str
        Beginnings of names of tensors that are not needed.
    """

    each: tuple[RotaryConfig, ...] = ()
    sources: tuple[int, ...] = ()
    inputs: int = 0
    local_base: float = 0.0
    softcap: float = 0.0
    spare: tuple[str, ...] = ()


def read(
    keys: Keys, period: int, others: Mapping[str, object] | None = None, **own: Any
) -> dict[str, Any]:
    """The fields of a `Config`, checked; `own` are further ones."""
    layers, heads = keys.size("block_count", 1 << 10), keys.size("attention.head_count", 1 << 12)
    hidden = keys.sizes("feed_forward_length", 1 << 22, layers)
    kv_heads = keys.sizes("attention.head_count_kv", 1 << 12, layers, heads)
    for count in kv_heads:
        if heads % count:
            raise keys.error("attention.head_count_kv", f"{count} do not share {heads} heads")
    keys.size("attention.sliding_window", 1 << 24)
    c = _decoder.rotary(keys, period=period, kv_heads=kv_heads[0], hidden=hidden[0])
    head = keys.size("attention.key_length_swa", 1 << 12, c.head_dim)
    rotated = keys.size("rope.dimension_count_swa", head, min(c.rotated, head))
    if rotated % 2:
        raise keys.error("rope.dimension_count_swa", f"expected an even number, found {rotated}")
    local = replace(c, head_dim=head, rotated=rotated)
    each = tuple(
        replace(local if window else c, hidden=size, kv_heads=count)
        for window, size, count in zip(c.windows, hidden, kv_heads, strict=True)
    )
    sources = _sources(keys, c.windows)
    shared = [layer for layer, source in enumerate(sources) if source != layer]
    fields = {
        **vars(c), "each": each, "sources": sources, **own,
        "inputs": keys.size("embedding_length_per_layer_input", 1 << 16, 0, low=0),
        "local_base": keys.number("rope.freq_base_swa", 10000.0),
        "softcap": keys.optional("final_logit_softcapping", 30.0),  # llama.cpp's default
        "spare": tuple(f"blk.{layer}.{part}" for layer in shared for part in _UNSHARED),
    }  # fmt: skip
    known = {"attention.value_length_swa": head, "attention.scale": 1.0}
    keys.refuse_others(c.head_dim, known | dict(others or {}))
    return fields


def _sources(keys: Keys, windows: tuple[int, ...]) -> tuple[int, ...]:
    """The layer whose keys and values each layer reads."""
    key, layers = "attention.shared_kv_layers", len(windows)
    first = layers - keys.size(key, layers, 0, low=0)
    last = {bool(window): layer for layer, window in enumerate(windows[:first])}
    for layer, window in enumerate(windows[first:], first):
        if bool(window) not in last:
            kind = "with" if window else "without"
            raise keys.error(key, f"layer {layer}: no layer {kind} a window has keys before it")
    return (*range(first), *(last[bool(window)] for window in windows[first:]))


class Layers(Decoder):
    """A decoder whose `config` is that of the layer under capture; `whole` is the model's."""

    def __init__(
        self, file: ModelFile, config: Config, program: Program, context: int, batch: int,
        cache: str,
    ) -> None:  # fmt: skip
        super().__init__(file, config, program, context, batch, cache)
        self.whole = config
        self.shared = sum(source != layer for layer, source in enumerate(config.sources))
        self._caches: dict[int, tuple[Buffer, Buffer]] = {}
        self.ids = program.input("ids", "i32", (self.n,))
        factors = "rope_freqs.weight" if "rope_freqs.weight" in file.tensors else ""
        self._everywhere = self.rope(config, interleaved=False, factors=factors)
        local = next((c for c, w in zip(config.each, config.windows, strict=True) if w), config)
        self._local = self.rope(
            local, interleaved=False, base=config.local_base, factor=1, name="local."
        )
        self._inputs: Buffer | None = None

    def enter(self, layer: int) -> str:
        """Begin a layer; the beginning of its tensors' names."""
        self.config = self.whole.each[layer]
        return f"blk.{layer}."

    def narrow(self, streams: list[Buffer]) -> list[Buffer]:
        """The rows whose logits are asked for, where layers without keys begin.

        These need no others. They and their positions are those of all parts from here on.
        """
        if self.whole.layers - self.shared != len(self._caches) or self.n is self.logit_rows:
            return streams
        rows = self.logit_rows
        self.position = self.program.sum_size(
            "last", self.positions, (self.position, self.n), (rows,)
        )
        self.n, self.ids = rows, self.ids.part(0, (rows,))
        if self._inputs is not None:
            self._inputs = ops.last_rows(self._inputs, rows=rows)
        return [ops.last_rows(x, rows=rows) for x in streams]

    def start(self) -> Buffer:
        """What the first layer reads; and the inputs of all layers, if there are any."""
        c = self.whole
        x = self.scaled(self.embed(), c.dim**0.5)
        if c.inputs:
            self._inputs = self._projected(x)
        return x

    def _projected(self, x: Buffer) -> Buffer:
        """(norm(w x / sqrt(dim)) + sqrt(inputs) embedding) / sqrt(2), [n, layers * inputs]."""
        c, width = self.whole, self.whole.layers * self.whole.inputs
        y = self.scaled(self.linear(x, "per_layer_model_proj", width), c.dim**-0.5)
        gain = self.weight("per_layer_proj_norm.weight", c.inputs)
        y = ops.rms_norm(y, gain, epsilon=c.epsilon, heads=c.layers)
        table = self.weight("per_layer_token_embd.weight", c.vocabulary, width)
        own = self.scaled(ops.gather(table, self.ids), c.inputs**0.5)
        return self.scaled(ops.add(y, own), 0.5**0.5)

    def with_input(self, x: Buffer, layer: int) -> Buffer:
        """norm(proj(gelu(gate(x)) * input)), [n, dim]."""
        c, name = self.whole, f"blk.{layer}."
        if self._inputs is None:
            raise FormatError(f"{self.file.path}: expected inputs of layers")
        rows = self._inputs.view((self.n.maximum * c.layers, c.inputs))
        places = ops.range_from(self.ids, start=layer, step=c.layers)
        gate = ops.gelu(self.linear(x, name + "inp_gate", c.inputs), approximate="tanh")
        y = self.linear(ops.mul(gate, ops.gather(rows, places)), name + "proj", c.dim)
        return self.norm(y, name + "post_norm")

    def attended(self, x: Buffer, layer: int) -> Buffer:
        """The result of attention, whose scores are not scaled: heads' norms are.

        Values are normalized, too. Without a matrix of values, a layer that sees everything takes
        its keys.
        """
        c, name, window = self.config, f"blk.{layer}.", self.whole.windows[layer]
        rope, source = self._local if window else self._everywhere, self.whole.sources[layer]
        q = self.linear(x, name + "attn_q", c.width)
        q = self.norm(q, name + "attn_q_norm", heads=c.heads)
        if source == layer:
            v = k = self.linear(x, name + "attn_k", c.kv_width)
            if window or f"{name}attn_v.weight" in self.file.tensors:
                v = self.linear(x, name + "attn_v", c.kv_width)
            k = self.norm(k, name + "attn_k_norm", heads=c.kv_heads)
            ones = self.program.constant("ones", np.ones(c.head_dim, np.float32))
            v = ops.rms_norm(v, ones, epsilon=c.epsilon, heads=c.kv_heads)
            self._caches[layer] = self.cached(name, k, v, rope)
        keys, values = self._caches[source]
        mixed = ops.group_query_attention(
            self.rotate(q, rope), keys, values, position=self.position, scale=1.0, window=window
        )
        return self.linear(mixed, name + "attn_output", c.dim)


def count(keys: ConfigKeys, key: str, default: int, maximum: int) -> int:
    """An integer of config.json that may be 0, or null for 0."""
    if keys.values.get(key, default) in (0, None):
        return 0
    return keys.integer(key, default, maximum=maximum)


def translate(config: Translation, architecture: str, shared: int) -> list[bool]:
    """Translate what is common, with names and sizes; returns which layers have a window.

    By default the last `shared` layers have no keys.
    """
    keys, values = config.keys, config.metadata
    keys.expect("hidden_activation", "gelu_pytorch_tanh", None)
    keys.expect("attention_bias", False)
    config.keys = keys.otherwise(sliding_window=512)
    config.decoder(architecture, 256)
    shared = count(keys, "num_kv_shared_layers", shared, config.size("block_count"))
    values["attention.shared_kv_layers"] = np.uint32(shared)
    if (softcap := keys.get("final_logit_softcapping")) is not None:
        softcap = keys.number("final_logit_softcapping")
    values["final_logit_softcapping"] = np.float32(softcap or 0)
    config.names = NAMES
    config.tied = keys.boolean("tie_word_embeddings", True)
    local = config.local_layers(lambda layer: True)
    values["attention.sliding_window"] = np.uint32(config.keys.integer("sliding_window"))
    values["attention.sliding_window_pattern"] = np.array(local, np.bool_)
    first = len(local) - shared
    config.uneven = tuple(
        f"blk.{layer}.{part}" for layer in range(first, len(local)) for part in _UNSHARED
    )
    return local


def set_hidden(config: Translation, sizes: list[int]) -> None:
    """Set the hidden elements of each layer's feed-forward part."""
    config.metadata["feed_forward_length"] = np.array(sizes, np.int32)
    dim = config.size("embedding_length")
    for layer, size in enumerate(sizes):
        name = f"blk.{layer}.ffn_"
        config.shapes |= {f"{name}gate": (size, dim), f"{name}up": (size, dim)}
        config.shapes[f"{name}down"] = (dim, size)


def translate_inputs(config: Translation, inputs: int) -> None:
    """Set the sizes of layers' inputs; tokens that are not of a text may lack them."""
    config.metadata["embedding_length_per_layer_input"] = np.uint32(inputs)
    if not inputs:
        return
    dim, tokens = config.size("embedding_length"), config.size("vocab_size")
    width = config.size("block_count") * inputs
    rows = config.keys.integer("vocab_size_per_layer_input", tokens, maximum=tokens)
    config.transforms["per_layer_token_embd.weight"] = padded(tokens - rows)
    config.shapes |= {
        "per_layer_token_embd": (rows, width),
        "per_layer_model_proj": (width, dim),
        "per_layer_proj_norm": (inputs,),
        "inp_gate": (inputs, dim),
        "proj": (dim, inputs),
    }
