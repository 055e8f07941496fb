"""Base and scaling of rotary positions, from config.json to GGUF's keys and tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.huggingface.config import Keys

Factors = npt.NDArray[np.float32]

# "dynamic" begins at the longest context, and "mrope" has other positions for images
_UNSCALED = ("default", "dynamic", "mrope")


def translate(
    rope: Keys, base: float, context: int, rotated: int
) -> tuple[dict[str, Any], Factors | None]:
    """Metadata without the architecture's name, and ``rope_freqs.weight`` if there is one.

    Parameters
    ----------
    rope : Keys
        The object of config.json that describes the scaling.
    base : float
        Of the frequencies.
    context : int
        Positions of the model.
    rotated : int
        Elements of a head that are rotated.

    Raises
    ------
    FormatError, UnsupportedError
        A number is missing or wrong, or the type of scaling is not known.
    """
    metadata: dict[str, Any] = {"rope.freq_base": np.float32(base)}
    scaling = rope.text("rope_type", rope.text("type", "default"))
    if scaling == "linear":
        metadata["rope.scaling.type"] = "linear"
        metadata["rope.scaling.factor"] = np.float32(rope.number("factor"))
    elif scaling == "yarn":
        metadata |= _yarn(rope, context)
    elif scaling == "llama3":
        return metadata, _llama3_factors(rope, base, rotated)
    elif scaling not in _UNSCALED:
        raise UnsupportedError(
            f"{rope.where}: scaling of rotary positions {scaling[:80]!r}: expected 'default', "
            "'dynamic', 'linear', 'llama3' or 'yarn'"
        )
    return metadata, None


def _yarn(rope: Keys, context: int) -> dict[str, Any]:
    """YaRN, whose gain of cos and sin llama.cpp computes from the factor, times its own."""
    rope.expect("truncate", True, None)
    original = rope.integer("original_max_position_embeddings", context)
    factor = rope.number("factor", context / original)
    usual = _yarn_gain(factor, 1.0)
    gain = usual
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        mscale, every = rope.number("mscale"), rope.number("mscale_all_dim")
        gain = _yarn_gain(factor, mscale) / _yarn_gain(factor, every)
    gain = rope.number("attention_factor", gain)
    own = {} if gain == usual else {"rope.scaling.attn_factor": np.float32(gain / usual)}
    return {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": np.float32(factor),
        "rope.scaling.original_context_length": np.uint32(original),
        "rope.scaling.yarn_beta_fast": np.float32(rope.number("beta_fast", 32.0)),
        "rope.scaling.yarn_beta_slow": np.float32(rope.number("beta_slow", 1.0)),
        **own,
    }


def _yarn_gain(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0


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
