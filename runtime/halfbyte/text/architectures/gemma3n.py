"""Gemma 3n (text): several streams of activations, an input for each layer, sparse activations.

A layer predicts all streams from all of them, computes with one, and corrects all by the result
(AltUp). Two small matrices stand beside attention (Laurel). In some layers only the gates that are
far above their mean are let through.

Source: Baykal et al. 2023, Alternating Updates for Efficient Transformers; transformers' Gemma 3n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, maximum
from halfbyte.core.program import Program, capture
from halfbyte.errors import FormatError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _per_layer, gemma3
from halfbyte.text.architectures._keys import Keys
from halfbyte.text.architectures._per_layer import Layers
from halfbyte.weights import F32, Tensor

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.config import Keys as ConfigKeys
    from halfbyte.formats.huggingface.names import Translation

TABLES: frozenset[str] = frozenset()
# Laurel adds what it reads to its result, so that the norm before attention stays as it is
EQUALIZED = {key: CHANNELS[key] for key in ("ffn_norm", "output_norm", "ffn_up")}
MODEL_TYPES = ("gemma3n_text",)
PERIOD = 5  # layers, the last without a window, if a file does not say
_SPARSE = 10  # layers at the beginning, of more than as many, if config.json does not say
_MAX_STREAMS = 16
_TINY = 1e-20  # where a norm has no epsilon
_NAMES = {
    "altup.correction_coefs": "altup_correct_coef",
    "altup.prediction_coefs": "altup_predict_coef",
    "altup.correct_output_scale": "altup_correct_scale",
    "altup.modality_router": "altup_router",
    "altup.router_norm": "altup_router_norm",
    "laurel.linear_left": "laurel_l",
    "laurel.linear_right": "laurel_r",
    "laurel.post_laurel_norm": "laurel_post_norm",
}
_STACKS = {"altup_projections": "altup_proj", "altup_unembed_projections": "altup_unembd_proj"}


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    keys = config.keys = config.keys.otherwise(final_logit_softcapping=30.0)
    keys.expect("altup_correct_scale", True)
    layers = keys.integer("num_hidden_layers", maximum=1 << 10)
    if not keys.list("layer_types"):
        kinds = ("sliding_attention", "full_attention")
        types = [kinds[(layer + 1) % PERIOD == 0] for layer in range(layers)]
        config.keys = config.keys.replaced(layer_types=types)
    sizes = keys.get("intermediate_size")
    if isinstance(sizes, list):  # one for each layer
        sizes = [int(size) for size in keys.numbers("intermediate_size", layers)]
        config.keys = config.keys.replaced(intermediate_size=max(sizes))
    _per_layer.translate(config, "gemma3n", shared=15)
    if isinstance(sizes, list) and len({*sizes}) > 1:
        _per_layer.set_hidden(config, sizes)
    gemma3.translate_rope(config)
    inputs = keys.integer("hidden_size_per_layer_input", 256, maximum=1 << 16)
    _per_layer.translate_inputs(config, inputs)
    config.metadata["activation_sparsity_scale"] = _sparsity(keys, layers)
    _translate_streams(config)


def _sparsity(keys: ConfigKeys, layers: int) -> npt.NDArray[np.float32]:
    """Standard deviations above the mean from which each layer's gates are let through."""
    from statistics import NormalDist

    shares = keys.list("activation_sparsity_pattern")
    if not shares:
        sparse = _SPARSE if layers > _SPARSE else 0
        shares = [0.95] * sparse + [0.0] * (layers - sparse)
    numbers = [s for s in shares if type(s) in (int, float) and 0 <= s < 1]
    if len(shares) != layers or len(numbers) != layers:
        raise FormatError(
            f"{keys.where}: key 'activation_sparsity_pattern': expected {layers} numbers of 0 and "
            "more, below 1"
        )
    return np.array([NormalDist().inv_cdf(s) if s else -np.inf for s in numbers], np.float32)


def _translate_streams(config: Translation) -> None:
    """Set the number of streams, and the sizes of what mixes them."""
    keys, dim = config.keys, config.size("embedding_length")
    streams = keys.integer("altup_num_inputs", 4, maximum=_MAX_STREAMS)
    config.metadata["altup.num_inputs"] = np.uint32(streams)
    active = _per_layer.count(keys, "altup_active_idx", 0, streams - 1)
    config.metadata["altup.active_idx"] = np.uint32(active)
    rank = keys.integer("laurel_rank", 64, maximum=1 << 16)
    config.shapes |= {
        "altup_proj": (streams - 1, dim, dim),
        "altup_unembd_proj": (streams - 1, dim, dim),
        "altup_correct_coef": (streams, streams),
        "altup_predict_coef": (streams * streams, streams),
        "altup_router": (streams, dim),
        "laurel_l": (rank, dim),
        "laurel_r": (dim, rank),
    }
    numbered = {
        f"{source}.{number}": f"{name}.weight[{number}]."
        for source, name in _STACKS.items()
        for number in range(streams - 1)
    }
    config.names = {**config.names, **_NAMES, **numbered}


@dataclass(frozen=True)
class Config(_per_layer.Config):
    """Hyperparameters with Gemma 3n's own."""

    streams: int = 0
    active: int = 0  # the stream that layers compute with
    cutoffs: tuple[float, ...] = ()  # of each layer's gates, in deviations; -inf for all gates


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``gemma3n.*``."""
    keys = Keys(file, "gemma3n")
    streams = keys.size("altup.num_inputs", _MAX_STREAMS, 4, low=2)
    active = keys.size("altup.active_idx", streams - 1, 0, low=0)
    cutoffs = keys.numbers("activation_sparsity_scale", keys.size("block_count", 1 << 10))
    fields = _per_layer.read(keys, PERIOD, streams=streams, active=active, cutoffs=cutoffs)
    if not fields["inputs"]:
        raise keys.error("embedding_length_per_layer_input", "expected 1 and more, found 0")
    return Config(**fields)


def build(file: ModelFile, config: Config, *, context: int, batch: int, cache: str) -> Program:
    """Capture the model; see :class:`_decoder.Decoder`."""
    with capture(file.path.name) as program:
        model = _Model(config, file, config, program, context, batch, cache)
        streams = model.spread(model.start())
        for layer in range(config.layers):
            streams = model.layer(model.narrow(streams), layer)
        x = model.merged(model.narrow(streams))
        model.head(model.norm(x, "output_norm"), config.softcap)
    return program


class _Model(Layers):
    """The model's streams, each [n, dim], and what a layer does with them."""

    def __init__(self, c: Config, *rest: Any) -> None:
        super().__init__(*rest)
        self.c, count = c, c.streams
        self._number = ops.range_from(self.ids, start=0)
        places = self.program.scratch("i32", (self.n, count))  # of streams, side by side
        for stream in range(count):
            one = ops.range_from(self.ids, start=stream, step=count).view((self.n, 1))
            ops.concat_part(places, one, offset=stream)
        self._numbers = places

    def times(self, x: Buffer, factors: Buffer) -> Buffer:
        """Rows of x times their factors [n, 1]."""
        row = self._number.part(0, (self.n, 1))
        y: Buffer = ops.sum_experts(x, factors, row, d=maximum(x.shape[1]))
        return y

    def mean(self, x: Buffer) -> Buffer:
        """The mean of each row, [n, 1]."""
        width = maximum(x.shape[1])
        row = F32.encode(np.full((1, width), 1 / width, np.float32)).reshape(-1)
        weight = self.program.weight(Tensor(f"mean of {width}", F32, (1, width), row))
        y: Buffer = ops.matmul(x, weight)
        return y

    def magnitude(self, x: Buffer) -> Buffer:
        """The root of each row's mean square, [n, 1]."""
        y: Buffer = ops.unary(self.mean(ops.mul(x, x)), function="sqrt")
        return y

    def through(self, x: Buffer, name: str, number: int, size: Buffer) -> Buffer:
        """x through one of the matrices of a tensor, with rows of this magnitude."""
        count, dim = self.c.streams - 1, self.c.dim
        whole = self.tensor(f"{name}.weight", count, dim, dim)
        y = ops.matmul(x, self.program.weight(whole.part(number * dim, (number + 1) * dim)))
        return self.times(ops.rms_norm(y, self._ones(dim), epsilon=_TINY), size)

    def spread(self, x: Buffer) -> list[Buffer]:
        """The streams of the embeddings x."""
        size, others = self.magnitude(x), range(self.c.streams - 1)
        return [x, *(self.through(x, "altup_proj", i, size) for i in others)]

    def merged(self, streams: list[Buffer]) -> Buffer:
        """The mean of the streams, all of the first one's magnitude."""
        total, size = streams[0], self.magnitude(streams[0])
        for number, x in enumerate(streams[1:]):
            total = ops.add(total, self.through(x, "altup_unembd_proj", number, size))
        return self.scaled(total, 1 / len(streams))

    def layer(self, streams: list[Buffer], layer: int) -> list[Buffer]:
        """The streams after a layer."""
        name, active = self.enter(layer), self.c.active
        predicted = self._predicted(streams, name)
        x = predicted[active]
        h = self.norm(x, name + "attn_norm")
        y = self.linear(h, name + "laurel_l", self._rank(name))
        y = self.norm(self.linear(y, name + "laurel_r", self.c.dim), name + "laurel_post_norm")
        laurel = ops.add(h, y)
        y = self.norm(self.attended(h, layer), name + "post_attention_norm")
        x = self.scaled(ops.add(ops.add(x, y), laurel), 0.5**0.5)
        y = self._fed_forward(self.norm(x, name + "ffn_norm"), name, self.c.cutoffs[layer])
        x = ops.add(x, self.norm(y, name + "post_ffw_norm"))
        corrected = self._corrected(predicted, x, name)
        scale = self.tensor(f"{name}altup_correct_scale.weight", self.c.dim).decode()
        x = ops.mul(corrected[active], self.row(f"{name}altup_correct_scale.weight", scale))
        y = self.with_input(x, layer)
        return [corrected[0], *(ops.add(stream, y) for stream in corrected[1:])]

    def _rank(self, name: str) -> int:
        left = self.file.tensors.get(f"{name}laurel_l.weight")
        return left.shape[0] if left is not None else 1

    def _fed_forward(self, x: Buffer, name: str, cutoff: float) -> Buffer:
        """(gelu(gate) * up) through `down`; of gates only what is beyond the cutoff, if any."""
        hidden = self.config.hidden
        gate, up = (self.linear(x, f"{name}ffn_{part}", hidden) for part in ("gate", "up"))
        if cutoff > -np.inf:
            gate = self._beyond(gate, cutoff)
        y = ops.mul(ops.gelu(gate, approximate="tanh"), up)
        return self.linear(y, name + "ffn_down", self.c.dim)

    def _beyond(self, x: Buffer, cutoff: float) -> Buffer:
        """relu(x - mean - cutoff deviation); the deviation is the mean of x (x - mean) / itself."""
        width = maximum(x.shape[1])
        none = self.program.constant("zeros", np.zeros(width, np.float32))
        y = ops.layer_norm(x, self._ones(width), none, epsilon=_TINY)
        deviation = self.mean(ops.mul(x, y))
        row = self.row(f"{-cutoff:g}", np.full(width, -cutoff, np.float32))
        return self.times(ops.unary(ops.add(y, row), function="relu"), deviation)

    def _modalities(self, x: Buffer, name: str) -> Buffer:
        """What the coefficients of streams are made from, [n, streams]."""
        h = self.scaled(self.norm(x, name + "altup_router_norm"), 1 / self.c.dim)
        routed = self.linear(h, name + "altup_router", self.c.streams)
        y: Buffer = ops.unary(routed, function="tanh")
        return y

    def _predicted(self, streams: list[Buffer], name: str) -> list[Buffer]:
        """Each stream plus all streams times its coefficients."""
        count, dim = self.c.streams, self.c.dim
        every = self.program.scratch("f32", (self.n, count * dim))
        for stream, x in enumerate(streams):
            whole, part = (y.view(y.shape, "i32") for y in (every, x))
            ops.concat_part(whole, part, offset=stream * dim)
        modalities = self._modalities(streams[self.c.active], name)
        parts = self.fused(modalities, name + "altup_predict_coef", (count,) * count)
        own = np.eye(count, dtype=np.float32)
        weights = [ops.add(y, self.row(f"stream {i}", own[i])) for i, y in enumerate(parts)]
        places = self._numbers.part(0, (self.n, count))
        return [ops.sum_experts(every, w, places, d=dim) for w in weights]

    def _corrected(self, predicted: list[Buffer], x: Buffer, name: str) -> list[Buffer]:
        """Each stream plus 1 + its coefficient times what is new in x."""
        modalities = self._modalities(x, name)
        parts = self.fused(modalities, name + "altup_correct_coef", (1,) * self.c.streams)
        new = ops.add(x, self.scaled(predicted[self.c.active], -1.0))
        one = self.row("1", np.ones(1, np.float32))
        return [
            ops.add(stream, self.times(new, ops.add(part, one)))
            for stream, part in zip(predicted, parts, strict=True)
        ]

    def _ones(self, width: int) -> Buffer:
        return self.program.constant("ones", np.ones(width, np.float32))
