"""Sounds as inputs of a model: recognizes their shapes, and converts samples to arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError
from halfbyte.web.graphs.hearing import MAX_SECONDS, RATE

Array = npt.NDArray[Any]

_NAMES = re.compile(r"audio|wave|sound|speech|samples|signal|pcm|^input_values$", re.IGNORECASE)
_MANY = 4000  # samples: a last side as long as this is a sound whatever its name
_MAX_SAMPLES = 3 * MAX_SECONDS * RATE  # of 48 kHz


def takes_sound(name: str, shape: Sequence[int | str | None]) -> bool:
    """Whether an input takes one sound: [n], [1, n] or [1, 1, n]; the sides of 1 may be open."""
    *ones, samples = shape or (0,)
    if len(ones) > 2 or any(isinstance(one, int) and one != 1 for one in ones):
        return False
    if isinstance(samples, int):
        return samples >= _MANY
    return bool(_NAMES.search(name))


def sound_array(samples: Any, shape: Sequence[int | str | None], dtype: Any) -> Array:
    """The array of a sound for an input of this shape, cut or padded to a fixed length.

    Parameters
    ----------
    samples : bytes-like [4 * n]
        One channel of float32 in -1..1.

    Raises
    ------
    HalfbyteError
        The sound is empty or too long.
    """
    sound = np.frombuffer(samples, np.float32)
    if not 0 < sound.size <= _MAX_SAMPLES:
        raise HalfbyteError(f"{sound.size} samples: expected 1 to {_MAX_SAMPLES}")
    length = shape[-1] if isinstance(shape[-1], int) else sound.size
    array = np.zeros(length, dtype)
    kept = min(length, sound.size)
    array[:kept] = sound[:kept]
    return array.reshape([1] * (len(shape) - 1) + [length])
