"""What a model's file recommends for conversations."""

from __future__ import annotations

import math

import numpy as np

from halfbyte.formats.model_file import ModelFile

KEY = "general.sampling.temp"  # as in llama.cpp
MAX_TEMPERATURE = 2.0


def recommended_temperature(file: ModelFile) -> float | None:
    """The temperature that suits a model, of 0 to `MAX_TEMPERATURE`; None if the file has none."""
    value = file.metadata.get(KEY)
    if not isinstance(value, int | float | np.number):
        return None
    temperature = round(float(value), 4)  # 0.3 is 0.30000001 in float32
    fits = math.isfinite(temperature) and 0 <= temperature <= MAX_TEMPERATURE
    return temperature if fits else None
