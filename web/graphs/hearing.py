"""Finds speech in a sound, with Silero's detector of voice activity (MIT)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError
from halfbyte.web.graphs.graph_model import GraphModel

F32Array = npt.NDArray[np.float32]

RATE = 16_000  # samples per second
FRAME, BEFORE = 512, 64  # samples of a frame, and those of the frame before that the model sees too
FRAMES = 64  # of which a run has a multiple, as each length has a program
MAX_SECONDS = 120
_BEGIN, _END = 0.5, 0.35  # probabilities at which speech begins and ends
_SILENCE, _SPEECH = 4, 8  # frames: shorter silences do not end a part; shorter parts are dropped


def probabilities(model: GraphModel, samples: Any) -> F32Array:
    """The probability of speech in each frame of samples [n] of float32 in -1..1.

    Raises
    ------
    HalfbyteError
        The sound is empty or too long, or the model is another one.
    """
    sound = np.frombuffer(samples, np.float32)
    if not 0 < sound.size <= MAX_SECONDS * RATE:
        raise HalfbyteError(
            f"a sound of {sound.size / RATE:.1f} s: expected at most {MAX_SECONDS} s, and some"
        )
    count = -(-sound.size // FRAME)
    room = -(-count // FRAMES) * FRAMES
    padded = np.zeros(BEFORE + room * FRAME, np.float32)
    padded[BEFORE : BEFORE + sound.size] = sound
    windows = np.lib.stride_tricks.sliding_window_view(padded, BEFORE + FRAME)[::FRAME]
    state = np.zeros((1, 1, 128), np.float32)
    feeds = {"input": np.ascontiguousarray(windows), "h": state, "c": state}
    if {arg.name for arg in model.inputs} != set(feeds):
        raise HalfbyteError(f"{model.name}: expected the inputs {', '.join(feeds)}")
    output: F32Array = model.run(feeds)[0].reshape(-1)[:count]
    return output


def parts(speech: F32Array) -> list[tuple[float, float]]:
    """Begin and end of each part with speech, in seconds, from the frames' probabilities."""
    found: list[list[int]] = []
    inside = False
    for frame, probability in enumerate(speech.tolist()):
        inside = probability >= (_END if inside else _BEGIN)
        if not inside:
            continue
        if found and frame - found[-1][1] <= _SILENCE:
            found[-1][1] = frame + 1
        else:
            found.append([frame, frame + 1])
    seconds = FRAME / RATE
    return [(a * seconds, b * seconds) for a, b in found if b - a >= _SPEECH]
