"""Experimental operators of ONNX's first versions, which ONNX Runtime still has in its domain.

Files that were converted from Core ML or Windows ML have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import ProgramError
from halfbyte.onnx.reference import _shapes
from halfbyte.onnx.reference.registry import define

Array = npt.NDArray[Any]


def _like(x: Array, **attributes: Any) -> _shapes.Shapes:
    return _shapes.blank(x.shape, x.dtype)


_SAME = _shapes.alike(_like)


@define("Affine", infer=_SAME)
def affine(x: Array, *, alpha: float = 1.0, beta: float = 0.0) -> Array:
    """alpha x + beta."""
    return np.asarray(np.float32(alpha) * x + np.float32(beta), x.dtype)


@define("Scale", infer=_SAME)
def scale_(x: Array, *, scale: float = 1.0) -> Array:
    """scale x."""
    return affine(x, alpha=scale)


@define("ScaledTanh", infer=_SAME)
def scaled_tanh(x: Array, *, alpha: float, beta: float) -> Array:
    """alpha tanh(beta x)."""
    return np.asarray(np.float32(alpha) * np.tanh(np.float32(beta) * x), x.dtype)


@define("ParametricSoftplus", infer=_SAME)
def parametric_softplus(x: Array, *, alpha: float, beta: float) -> Array:
    """alpha log(1 + exp(beta x))."""
    return np.asarray(np.float32(alpha) * np.logaddexp(np.float32(beta) * x, 0), x.dtype)


@define("ImageScaler", infer=_SAME)
def image_scaler(x: Array, *, bias: Sequence[float], scale: float = 1.0) -> Array:
    """scale x + bias, x [N, C, H, W], bias [C]."""
    if x.ndim != 4 or len(bias) != x.shape[1]:
        raise ProgramError(f"input {list(x.shape)}: expected [N, {len(bias)}, H, W]")
    shift = np.array(bias, np.float32).reshape(-1, 1, 1)
    return np.asarray(np.float32(scale) * x + shift, x.dtype)


@define("Crop", infer=_shapes.views(_shapes.same_rank))
def crop(x: Array, *, border: Sequence[int], scale: Sequence[int] | None = None) -> Array:
    """x [N, C, H, W] without a border (left, top, right, bottom), or `scale` (H, W) from there."""
    if x.ndim != 4 or len(border) != 4 or min(border) < 0:
        raise ProgramError(f"input {list(x.shape)}, border {list(border)}: expected [N, C, H, W], "
                           "and four numbers from 0 on")  # fmt: skip
    left, top, right, bottom = border
    height, width = scale or (x.shape[2] - top - bottom, x.shape[3] - left - right)
    if height < 1 or width < 1 or top + height > x.shape[2] or left + width > x.shape[3]:
        raise ProgramError(f"{height} x {width} from {top}, {left}: outside {list(x.shape)}")
    return x[:, :, top : top + height, left : left + width]
