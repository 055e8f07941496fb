"""Cases of convolutions by Winograd's algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.core.ops.case import EPS, TINY, Case, activations
from tests.core.ops.cases_conv import Shape, images, label, window

from halfbyte.core import ops
from halfbyte.core.ops.winograd import PIXELS, RESULT, sums

WINOGRAD: tuple[Shape, ...] = (
    ((1, 1, 1), (16, 1, 1), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ((2, 6, 7), (16, 33, 1), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ((1, 5, 4), (80, 70, 1), (3, 3), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((1, 2, 3), (32, 16, 1), (3, 3), (1, 1), (1, 1), (4, 3, 0, 5)),
    # several spans of patches, and several groups of outputs
    ((1, 13, 14), (48, 130, 1), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
)


def winograd() -> Iterator[Case]:
    """Borders, odd sizes, channels in parts; with limits, and with a residual."""
    for shape in WINOGRAD:
        (n, h, v), (c, m, _), *_ = shape
        at = {name: window(shape)[name] for name in ("p", "q", "top", "left")}
        x, bias = images(n, h, v, c), activations(1, m)[0]
        w = ops.pack_winograd(activations(m, c * 9, spread=(c * 9) ** -0.5).reshape(m, c, 3, 3))
        size = sums(
            np.abs(x), np.abs(w), (at["p"], at["q"]), (at["top"], at["left"]),
            np.abs(PIXELS), np.abs(RESULT),
        )[..., :m] + np.abs(bias)  # fmt: skip
        bound = (c + 12) * EPS * size + TINY
        operands = {"x": x, "w": w, "bias": bias}
        attributes: dict[str, Any] = {**at, "lo": 0.0, "hi": 6.0}
        yield Case(label(shape), ops.conv2d_winograd, operands, attributes, bound, fused=True)
        r = images(n, at["p"], at["q"], m, 1)
        yield Case(
            f"{label(shape)}-r", ops.conv2d_winograd, {**operands, "r": r},
            {**attributes, "lo": -np.inf, "hi": np.inf}, bound + 2 * EPS * (size + np.abs(r)),
            fused=True,
        )  # fmt: skip


FAMILIES = (winograd,)
