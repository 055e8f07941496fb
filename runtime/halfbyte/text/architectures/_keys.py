"""Reading an architecture's metadata and refusing keys that were not read.

Ignoring them would run another model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats import metadata
from halfbyte.formats.embedding import DENSE_NUMBERS
from halfbyte.formats.model_file import ModelFile

_MOST = 1e6

# Further keys of llama.cpp's, with the values that describe the models built here. PASSED are those
# that change no result without experts, YaRN and, in language models, pooling.
_OTHERS: dict[str, object] = {
    "vocab_size": metadata.ANY,  # the embedding has it
    "tensor_data_layout": metadata.ANY,
    **{f"dense_{n}_feat_{end}": metadata.ANY for n in DENSE_NUMBERS for end in ("in", "out")},
    "attention.layer_norm_epsilon": metadata.ANY,
    "attention.layer_norm_rms_epsilon": metadata.ANY,
    "rope.scaling.factor": 1,
    "rope.scaling.attn_factor": 1,
    "rope.scaling.original_context_length": metadata.ANY,  # for types other than "none"
    "rope.scale_linear": 1,  # the factor's older name
    "expert_count": 0,
    "expert_used_count": 0,
    "expert_shared_count": 0,
    "leading_dense_block_count": 0,
    "nextn_predict_layers": 0,
    "attention.causal": True,
    "attention.sliding_window": 0,
    "attention.shared_kv_layers": 0,
    "attention.max_alibi_bias": 0,
    "attention.clamp_kqv": 0,
    "attention.output_scale": 1,
    "attention.temperature_scale": 0,
    "attn_logit_softcapping": 0,
    "final_logit_softcapping": 0,
    "logit_scale": 1,
    "embedding_scale": 1,
    "residual_scale": 1,
    "use_parallel_residual": False,
    "swin_norm": False,
} | dict.fromkeys(
    (
        "rope.scaling.finetuned", "rope.scaling.yarn_log_multiplier",
        "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor",
        "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
        "pooling_type", "classifier.output_labels", "decoder_start_token_id",
        "attention.group_norm_epsilon", "attention.group_norm_groups",
        "attention.relative_buckets_count", "expert_feed_forward_length",
        "expert_shared_feed_forward_length", "expert_weights_scale", "expert_weights_norm",
        "expert_gating_func", "expert_group_count", "expert_group_used_count",
    ),
    metadata.PASSED,
)  # fmt: skip


def passed_over(file: ModelFile, *, encodes: bool = False) -> list[str]:
    """Notes on the model's metadata that changes no result; pooling does where it `encodes`."""
    prefix = metadata.text(file, "general.architecture") + "."
    keys = [key for key in file.metadata if key.startswith(prefix)]
    experts: Any = file.metadata.get(f"{prefix}expert_count", 0)
    if np.any(experts):
        keys = [key for key in keys if not key.startswith(f"{prefix}expert_")]
    return [
        f"metadata {key!r}: passed over: it changes no result"
        for key in keys
        if _OTHERS.get(key.removeprefix(prefix)) is metadata.PASSED
        and not (encodes and key.endswith(".pooling_type"))
    ]


class Keys:
    """An architecture's metadata, by keys without its name; remembers which were read."""

    def __init__(self, file: ModelFile, architecture: str) -> None:
        self.file, self._prefix = file, architecture + "."
        self._read: set[str] = set()

    def size(self, key: str, high: int, default: int | None = None, low: int = 1) -> int:
        """An integer from `low` to `high`; or an array that has the same one for each layer."""
        name = self._name(key)
        if default is None:
            return metadata.integer(self.file, name, low, high)
        return metadata.integer(self.file, name, low, high, default)

    def sizes(
        self, key: str, high: int, layers: int, default: int | None = None
    ) -> tuple[int, ...]:
        """As :meth:`size`, of each layer, if there are as many of them."""
        values: Any = self.file.metadata.get(self._name(key))
        if not isinstance(values, np.ndarray):
            return (self.size(key, high, default),) * layers
        whole = values.shape == (layers,) and values.dtype.kind in "iu"
        if not whole or not all(1 <= value <= high for value in values.tolist()):
            raise self.error(key, f"expected {layers} integers from 1 to {high}")
        return tuple(values.tolist())

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number."""
        name = self._name(key)
        if default is None:
            return metadata.number(self.file, name)
        return metadata.number(self.file, name, default)

    def has(self, key: str) -> bool:
        """Whether the metadata has a key."""
        return self._prefix + key in self.file.metadata

    def error(self, key: str, message: str) -> FormatError:
        """The error for a key's value."""
        return FormatError(f"{self.file.path}: metadata '{self._prefix}{key}': {message}")

    def optional(self, key: str, default: float = 0.0) -> float:
        """A positive number, or 0: something is not there."""
        value = self.file.metadata.get(self._prefix + key)
        if isinstance(value, int | float | np.number) and not value:
            self._name(key)
            return 0.0
        return self.number(key, default) if value is not None or default else 0.0

    def boolean(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.file.metadata.get(self._name(key), default)
        if not isinstance(value, bool | np.bool_):
            raise self.error(key, f"expected true or false, found {type(value).__name__}")
        return bool(value)

    def one_of(self, key: str, *known: str) -> str:
        """One of these strings, by default the first."""
        name = self._name(key)
        value = metadata.text(self.file, name) if self.has(key) else known[0]
        if value not in known:
            raise UnsupportedError(
                f"{self.file.path}: metadata '{name}': expected one of {list(known)}, found "
                f"{value[:40]!r}"
            )
        return value

    def rope_scaling(self) -> str:
        """The type of scaling of rotary positions."""
        if not self.has("rope.scaling.type"):
            return "none"
        return metadata.text(self.file, self._name("rope.scaling.type"))

    def rope_factor(self, *known: str) -> float:
        """The factor that positions are divided by; types other than `known` are refused."""
        kind = self.rope_scaling()
        if kind in ("linear", "yarn"):
            return self.number("rope.scaling.factor")
        if kind not in ("none", *known):
            expected = " or ".join(map(repr, ("none", "linear", *known)))
            raise UnsupportedError(
                f"{self.file.path}: metadata '{self._prefix}rope.scaling.type': expected "
                f"{expected}, found {kind[:40]!r}"
            )
        return 1.0

    def windows(self, layers: int, period: int = 0, *, first: bool = False) -> tuple[int, ...]:
        """The window of each layer, 0 for all positions.

        ``attention.sliding_window_pattern`` is either a flag for each layer or a period, whose
        last layer, or `first` one, sees all positions; with 0 all layers have the window.
        """
        window = self.size("attention.sliding_window", 1 << 24, 0, low=0)
        key = "attention.sliding_window_pattern"
        flags: Any = self.file.metadata.get(self._prefix + key)
        if not isinstance(flags, np.ndarray):
            period = self.size(key, 1 << 10, period, low=0)
            numbers = np.arange(layers) + (not first)
            flags = numbers % period != 0 if period else np.ones(layers, bool)
        else:
            flags = np.array(self.flags(key, layers))
        return tuple(window if flag else 0 for flag in flags.tolist())

    def flags(self, key: str, count: int) -> tuple[bool, ...]:
        """As many flags, or none."""
        values: Any = self.file.metadata.get(self._name(key))
        if values is None:
            return ()
        if not isinstance(values, np.ndarray) or values.shape != (count,) or values.dtype != bool:
            raise self.error(key, f"expected {count} flags")
        return tuple(values.tolist())

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """As many numbers of any sign, which may be -infinity."""
        values: Any = self.file.metadata.get(self._name(key))
        floats = isinstance(values, np.ndarray) and values.dtype.kind == "f"
        if not floats or values.shape != (count,) or not np.all(values < _MOST):
            raise self.error(key, f"expected {count} numbers below {_MOST:g}")
        return tuple(values.tolist())

    def attends(self, layers: int) -> tuple[tuple[bool, ...], int]:
        """Which layers have attention, and its key and value heads; others have none, 0."""
        return self.of_some("attention.head_count_kv", layers, 1 << 12)

    def of_some(self, key: str, layers: int, high: int) -> tuple[tuple[bool, ...], int]:
        """Which layers have a part, and its size up to `high`; that of others is 0."""
        counts: Any = self.file.metadata.get(self._name(key))
        if not isinstance(counts, np.ndarray) or counts.dtype.kind not in "iu":
            return (True,) * layers, self.size(key, high)
        most = int(counts.max(initial=0))
        if counts.shape != (layers,) or not 1 <= most <= high or {*counts.tolist()} - {0, most}:
            raise self.error(
                key, f"expected {layers} counts, each of them 0 or the same from 1 to {high}"
            )
        return tuple((counts > 0).tolist()), most

    def refuse_others(self, head_dim: int, others: Mapping[str, object] | None = None) -> None:
        """Refuse keys that were not read, unless they describe what is built."""
        built = {"attention.value_length": head_dim, "attention.scale": max(head_dim, 1) ** -0.5}
        metadata.refuse_others(
            self.file, self._prefix, self._read, {**_OTHERS, **built, **(others or {})}
        )

    def _name(self, key: str) -> str:
        self._read.add(key)
        return self._prefix + key
