"""Cases of ONNX's neural-network operators that its own tests hardly cover: mostly older versions.

Inputs are random, seeded by a case's name.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One node of the default domain under an opset.

    Attributes
    ----------
    inputs : sequence
        Arrays; a shape (tuple of int) stands for normally distributed float32, None for no input.
    outputs : int
        Number of outputs.
    apart : int
        The largest difference of integer results: 1 where ONNX Runtime rounds elsewhere.
    """

    operator: str
    opset: int
    label: str
    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    apart: int = 0
    rtol: float = 1e-5
    atol: float = 1e-5

    def __str__(self) -> str:
        return f"{self.operator}-{self.opset}-{self.label}"

    def values(self) -> list[Array | None]:
        """The inputs as arrays."""
        rng = np.random.default_rng(zlib.crc32(str(self).encode()))

        def one(given: Any) -> Array | None:
            if isinstance(given, tuple):
                return rng.standard_normal(given).astype(np.float32)
            return given if given is None else np.asarray(given)

        return [one(given) for given in self.inputs]


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


def i32(*values: int) -> Array:
    return np.array(values, np.int32)


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def every_byte(dtype: Any, *shape: int) -> Array:
    """All values of an 8-bit type, repeated over a shape in a mixed order."""
    limits = np.iinfo(dtype)
    count = int(np.prod(shape))
    return (limits.min + (np.arange(count) * 97) % 256).astype(dtype).reshape(shape)


def convolutions() -> Iterator[Case]:
    for opset in (7, 11, 22):
        yield Case(
            "Conv", opset, "plain", [(2, 4, 9, 8), (6, 4, 3, 2), (6,)], {"pads": [1, 0, 2, 1]}
        )
    more: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "groups": ([(1, 6, 9, 9), (4, 3, 3, 3)], {"group": 2, "strides": [2, 3]}),
        "depthwise": ([(2, 5, 9, 9), (5, 1, 3, 3), (5,)], {"group": 5, "dilations": [2, 1]}),
        "multiplier": ([(1, 3, 7, 7), (6, 1, 3, 3)], {"group": 3, "pads": [1, 1, 1, 1]}),
        "upper": ([(1, 2, 10, 7), (3, 2, 3, 4)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        "lower": ([(1, 2, 10, 7), (3, 2, 3, 4)], {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
        "valid": ([(1, 2, 10, 7), (3, 2, 3, 4)], {"auto_pad": "VALID"}),
        "line": ([(2, 3, 20), (4, 3, 5), (4,)], {"dilations": [3], "pads": [4, 2]}),
        "volume": ([(1, 2, 5, 6, 4), (3, 2, 2, 3, 1)], {"strides": [1, 2, 3]}),
        "point": ([(2, 8, 5, 5), (4, 8, 1, 1)], {}),
        "empty": ([(0, 3, 5, 5), (4, 3, 3, 3)], {}),
    }
    for label, (inputs, attributes) in more.items():
        yield Case("Conv", 17, label, inputs, attributes)
    transposed: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "plain": ([(2, 4, 5, 4), (4, 3, 3, 3), (3,)], {}),
        "groups": ([(1, 4, 5, 4), (4, 3, 3, 2), (6,)], {"group": 2, "strides": [2, 3]}),
        "padded": (
            [(1, 2, 5, 4), (2, 3, 3, 3)],
            {"strides": [3, 2], "pads": [1, 0, 2, 1], "output_padding": [2, 1]},
        ),
        "dilated": ([(1, 2, 5, 4), (2, 3, 3, 3)], {"dilations": [2, 3], "pads": [1, 1, 1, 1]}),
        "upper": ([(1, 2, 5, 4), (2, 3, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        "lower": ([(1, 2, 5, 4), (2, 3, 3, 3)], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
        "shape": ([(1, 2, 5, 4), (2, 3, 3, 3)], {"output_shape": [10, 8], "strides": [2, 2]}),
        "line": ([(2, 3, 7), (3, 2, 4)], {"strides": [3], "pads": [1, 2]}),
        "volume": ([(1, 2, 3, 4, 2), (2, 3, 2, 3, 2)], {"strides": [1, 2, 2]}),
    }
    for label, (inputs, attributes) in transposed.items():
        yield Case("ConvTranspose", 11, label, inputs, attributes)


def pools() -> Iterator[Case]:
    plain = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    for opset in (7, 10, 11, 19, 22):
        yield Case("AveragePool", opset, "plain", [(2, 3, 9, 8)], plain)
        yield Case("AveragePool", opset, "with", [(2, 3, 9, 8)], {**plain, "count_include_pad": 1})
    ceil = {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1}
    for opset in (10, 19, 22):
        yield Case("AveragePool", opset, "ceil", [(1, 2, 8, 9)], ceil)
    yield Case(
        "AveragePool", 19, "dilated", [(1, 2, 9, 9)], {"kernel_shape": [3, 2], "dilations": [2, 3]}
    )
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        attributes = {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": pad}
        for name in ("AveragePool", "MaxPool", "LpPool"):
            yield Case(name, 18, pad.lower(), [(1, 2, 8, 7)], attributes)
    for opset in (7, 8, 10, 11, 12, 22):
        yield Case("MaxPool", opset, "plain", [(2, 3, 9, 8)], plain)
    yield Case("MaxPool", 12, "ceil", [(1, 2, 8, 9)], ceil)
    dilated = {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 1, 1, 1]}
    for order in (0, 1):
        attributes = {**dilated, "storage_order": order}
        yield Case("MaxPool", 12, f"indices{order}", [(2, 3, 9, 8)], attributes, 2)
    yield Case("MaxPool", 12, "uint8", [every_byte(np.uint8, 1, 3, 9, 9)], plain)
    yield Case("MaxPool", 12, "int8", [every_byte(np.int8, 1, 3, 9, 9)], plain, 2)
    yield Case("MaxPool", 12, "line", [(2, 3, 9)], {"kernel_shape": [4], "strides": [3]}, 2)
    yield Case("MaxPool", 12, "volume", [(1, 2, 5, 6, 7)], {"kernel_shape": [2, 3, 2]}, 2)
    for opset in (7, 11, 18):
        yield Case("LpPool", opset, "plain", [(2, 3, 9, 8)], {**plain, "p": 3})
    for name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        yield Case(name, 7, "plain", [(2, 3, 4, 5)])
    unpooled = [f32(5, 6, 7, 8).reshape(1, 1, 2, 2), i64(0, 3, 9, 15).reshape(1, 1, 2, 2)]
    yield Case("MaxUnpool", 11, "plain", unpooled, {"kernel_shape": [2, 2], "strides": [2, 2]})


def normalizations() -> Iterator[Case]:
    spread = np.linspace(0.5, 2, 3).astype(np.float32)
    for opset in (7, 9, 14, 15):
        yield Case("BatchNormalization", opset, "plain", [(4, 3, 5, 2), (3,), (3,), (3,), spread])
    yield Case("BatchNormalization", 9, "flat", [(4, 3), (3,), (3,), (3,), spread])
    training = [(4, 3, 5), (3,), (3,), (3,), spread]
    yield Case(
        "BatchNormalization", 15, "training", training, {"training_mode": 1, "momentum": 0.7}, 3
    )
    yield Case("InstanceNormalization", 7, "line", [(2, 3, 9), (3,), (3,)], {"epsilon": 0.01})
    yield Case("LRN", 7, "bias", [(2, 7, 3, 3)], {"size": 3, "alpha": 0.3, "bias": 2.0})
    yield Case("LRN", 13, "odd", [(2, 7, 3, 3)], {"size": 5, "alpha": 0.3, "beta": 0.5})
    yield Case("LpNormalization", 7, "one", [(3, 4, 5)], {"p": 1, "axis": 1})
    zeros = np.zeros((2, 3), np.float32)
    yield Case("LpNormalization", 7, "zero", [zeros], {"axis": 0})
    yield Case("MeanVarianceNormalization", 9, "axes", [(3, 4, 5, 2)], {"axes": [1, 3]})
    yield Case("LayerNormalization", 17, "axis", [(3, 4, 5), (4, 5), (4, 5)], {"axis": 1}, 3)
    yield Case("LayerNormalization", 17, "bare", [(3, 4, 5), (5,)], {"epsilon": 0.1})
    half = np.linspace(-300, 300, 40).astype(np.float16).reshape(2, 4, 5)
    yield Case(
        "LayerNormalization", 17, "half", [half, half[0, 0], half[0, 1]], {}, rtol=2e-3, atol=1e-3
    )
    yield Case("GroupNormalization", 18, "plain", [(2, 6, 3, 2), (3,), (3,)], {"num_groups": 3})
    yield Case("GroupNormalization", 21, "plain", [(2, 6, 3, 2), (6,), (6,)], {"num_groups": 2})
    yield Case("RMSNormalization", 23, "axis", [(2, 6, 3), (6, 3)], {"axis": 1})


def activations() -> Iterator[Case]:
    for name in (
        "Relu",
        "LeakyRelu",
        "Elu",
        "Selu",
        "Sigmoid",
        "HardSigmoid",
        "Softplus",
        "Softsign",
    ):
        yield Case(name, 7, "plain", [(4, 30)])
    wide = f32(-200, -90, -30, -1e-4, -0.0, 0, 1e-4, 30, 90, 200)
    for name in ("Sigmoid", "Softplus", "Elu", "Celu", "Softsign", "Mish", "HardSwish"):
        yield Case(name, 18, "far", [wide])
    yield Case("PRelu", 7, "channels", [(2, 3, 4), (3, 1)])
    yield Case("PRelu", 9, "one", [(2, 3, 4), (1,)])
    yield Case("ThresholdedRelu", 10, "alpha", [(4, 30)], {"alpha": 0.3})
    yield Case("Shrink", 9, "bias", [(4, 30)], {"bias": 0.2, "lambd": 0.4})
    yield Case("Gelu", 20, "none", [wide * 0.05])
    yield Case("Gelu", 20, "tanh", [wide * 0.05], {"approximate": "tanh"})
    for opset in (7, 11, 13):
        for axis in (0, 1, 2):
            for name in ("Softmax", "LogSoftmax", "Hardmax"):
                yield Case(name, opset, f"axis{axis}", [(3, 4, 5)], {"axis": axis})
    yield Case("Softmax", 11, "negative", [(3, 4, 5)], {"axis": -2})
    for opset in (7, 10):
        yield Case("Dropout", opset, "ratio", [(3, 4)], {"ratio": 0.3})
    yield Case("Dropout", 12, "mask", [(3, 4), f32(0.3).reshape(())], {}, 2)


def recurrences() -> Iterator[Case]:
    time, batch, size, hidden = 5, 3, 4, 6
    functions: dict[str, dict[str, list[Any]]] = {
        "RNN": {"activations": ["Relu"]},
        "GRU": {
            "activations": ["HardSigmoid", "Softsign"],
            "activation_alpha": [0.3], "activation_beta": [0.4],
        },
        "LSTM": {
            "activations": ["HardSigmoid", "ScaledTanh", "Affine"],
            "activation_alpha": [0.3, 0.7, 1.1], "activation_beta": [0.4, 0.9, 0.1],
        },
    }  # fmt: skip
    for name, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        outputs = 3 if name == "LSTM" else 2
        for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            weights = [(count, gates * hidden, size), (count, gates * hidden, hidden)]
            states: list[Any] = [(count, batch, hidden)] * (outputs - 1)
            own = {"direction": direction, "hidden_size": hidden}
            chosen = {key: values * count for key, values in functions[name].items()}
            full = [
                (time, batch, size), *weights, (count, 2 * gates * hidden), i32(5, 2, 4), *states,
            ]  # fmt: skip
            kinds: dict[str, tuple[list[Any], dict[str, Any]]] = {
                "bare": (full[:3], {}),
                "full": (full, {}),
                "clipped": (full, {"clip": 0.4}),
                "functions": (full, chosen),
            }
            if name == "GRU":
                kinds["linear"] = (full, {"linear_before_reset": 1})
            if name == "LSTM":
                kinds["peep"] = ([*full, (count, 3 * hidden)], {})
                kinds["coupled"] = ([*full, (count, 3 * hidden)], {"input_forget": 1})
            for label, (inputs, more) in kinds.items():
                opset = 7 if label == "bare" else 14
                yield Case(name, opset, f"{direction}-{label}", inputs, {**own, **more}, outputs)


def resizes() -> Iterator[Case]:
    data = (1, 2, 5, 7)
    for mode in ("nearest", "linear"):
        for label, scales in (("up", f32(1, 1, 2, 3)), ("down", f32(1, 1, 0.6, 0.45))):
            yield Case("Resize", 10, f"{mode}-{label}", [data, scales], {"mode": mode})
        yield Case("Upsample", 9, mode, [data, f32(1, 1, 2, 1.5)], {"mode": mode})
        yield Case("Upsample", 7, mode, [data], {"mode": mode, "scales": [1.0, 1.0, 2.0, 3.0]})
    ways = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    for opset in (11, 13, 18, 19):
        for way in ways if opset in (11, 19) else ways[:1]:
            for mode in ("nearest", "linear", "cubic"):
                attributes = {"mode": mode, "coordinate_transformation_mode": way}
                for label, sizes in (("up", i64(1, 2, 9, 10)), ("down", i64(1, 2, 3, 4))):
                    left_out = f32() if opset == 11 else None
                    inputs = [data, left_out, left_out, sizes]
                    yield Case("Resize", opset, f"{way}-{mode}-{label}", inputs, attributes)
    for way in (*ways, "half_pixel_symmetric"):
        for mode in ("nearest", "linear"):
            attributes = {"mode": mode, "coordinate_transformation_mode": way}
            inputs = [data, None, f32(1, 1, 1.7, 0.6)]
            yield Case("Resize", 19, f"{way}-{mode}-fraction", inputs, attributes)
    for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        attributes = {"nearest_mode": nearest, "coordinate_transformation_mode": "asymmetric"}
        yield Case("Resize", 11, nearest, [data, f32(), f32(1, 1, 1.6, 0.4)], attributes)
    yield Case("Resize", 11, "tf", [data, f32(), f32(1, 1, 2, 0.5)], {
        "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor",
    })  # fmt: skip
    crop = {
        "mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 10.0,
    }  # fmt: skip
    roi = f32(0, 0, 0.2, -0.31, 1, 1, 0.9, 1.2)
    yield Case("Resize", 11, "crop", [data, roi, f32(), i64(1, 2, 4, 6)], crop)
    yield Case("Resize", 11, "excluded", [data, f32(), f32(1, 1, 2, 0.6)], {
        "mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5,
    })  # fmt: skip
    for policy in ("not_larger", "not_smaller"):
        attributes = {"keep_aspect_ratio_policy": policy, "axes": [2, 3], "mode": "linear"}
        yield Case("Resize", 18, policy, [data, None, None, i64(9, 9)], attributes)
    yield Case("Resize", 13, "uint8", [every_byte(np.uint8, 1, 1, 6, 8), None, f32(1, 1, 2, 2)], {
        "mode": "linear"}, apart=1)  # fmt: skip
    yield Case("Resize", 13, "int32", [np.arange(24, dtype=np.int32).reshape(1, 1, 4, 6), None,
        f32(1, 1, 1.5, 2)], {"mode": "linear"}, apart=1)  # fmt: skip


def samples() -> Iterator[Case]:
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                attributes = {"mode": mode, "padding_mode": padding, "align_corners": corners}
                label = f"{mode}-{padding}-{corners}"
                yield Case("GridSample", 16, label, [(2, 3, 5, 6), (2, 4, 3, 2)], attributes)
    yield Case("GridSample", 20, "volume", [(1, 2, 3, 4, 5), (1, 2, 3, 2, 3)], {"mode": "linear"})
    for corners in (0, 1):
        attributes = {"align_corners": corners}
        yield Case("AffineGrid", 20, f"flat{corners}", [(2, 2, 3), i64(2, 3, 4, 5)], attributes)
    boxes = f32(0, 0, 5, 5, 1, 2, 6.5, 4, 3, 3, 4, 4).reshape(3, 4)
    for mode in ("avg", "max"):
        for ratio in (0, 2):
            attributes = {
                "mode": mode, "sampling_ratio": ratio, "output_height": 2, "output_width": 3,
                "spatial_scale": 0.8,
            }  # fmt: skip
            for opset in (10, 16):
                yield Case(
                    "RoiAlign",
                    opset,
                    f"{mode}{ratio}",
                    [(2, 3, 6, 7), boxes, i64(0, 1, 1)],
                    attributes,
                )
    rois = f32(0, 0, 0, 5, 5, 1, 1, 2, 6, 4, 1, 3, 3, 3, 3).reshape(3, 5)
    yield Case("MaxRoiPool", 7, "plain", [(2, 3, 6, 7), rois], {
        "pooled_shape": [2, 3], "spatial_scale": 0.7,
    })  # fmt: skip
    rng = np.random.default_rng(1)
    corners = rng.uniform(0, 1, (2, 20, 4)).astype(np.float32)
    scores = rng.uniform(0, 1, (2, 3, 20)).astype(np.float32)
    for center in (0, 1):
        yield Case(
            "NonMaxSuppression", 11, f"center{center}",
            [corners, scores, i64(4), f32(0.3), f32(0.2)], {"center_point_box": center},
        )  # fmt: skip
    columns = [(2, 3 * 6, 12), i64(5, 4), i64(2, 3)]
    yield Case("Col2Im", 18, "padded", columns, {"pads": [0, 1, 0, 0], "strides": [1, 1]})


def integers() -> Iterator[Case]:
    u8, i8 = every_byte(np.uint8, 1, 4, 6, 5), every_byte(np.int8, 6, 2, 3, 3)
    zero_u8, zero_i8 = np.uint8(120), np.int8(-3)
    attributes = {"group": 2, "pads": [1, 1, 0, 2], "strides": [2, 1]}
    yield Case(
        "ConvInteger", 10, "groups", [u8, i8.view(np.uint8), zero_u8, np.uint8(7)], attributes
    )
    scales = np.linspace(0.01, 0.03, 6).astype(np.float32)
    zeros = np.zeros(6, np.int8)
    scalars = [np.float32(0.02), zero_u8]
    bias = i32(5, -300, 70, 0, 1000, -1)
    quantized = [u8, *scalars, i8, scales, zeros, np.float32(0.9), np.uint8(100), bias]
    yield Case("QLinearConv", 10, "channels", quantized, attributes)
    a, b = every_byte(np.uint8, 2, 5, 7), every_byte(np.uint8, 7, 4)
    yield Case("MatMulInteger", 10, "plain", [a, b, zero_u8, np.uint8(9)])
    per_column = np.array([1, 2, 3, 4], np.uint8)
    yield Case("MatMulInteger", 10, "columns", [a, b, zero_u8, per_column])
    yield Case("QLinearMatMul", 10, "plain", [
        a, *scalars, b, np.float32(0.04), zero_u8, np.float32(2.1), np.uint8(90),
    ])  # fmt: skip
    x = (4, 5, 6)
    for opset in (10, 13, 19, 21):
        yield Case("QuantizeLinear", opset, "uint8", [x, np.float32(0.02), zero_u8])
        yield Case("DequantizeLinear", opset, "int8", [i8, np.float32(0.02), zero_i8])
    ties = f32(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 300, -300)
    yield Case("QuantizeLinear", 10, "ties", [ties, np.float32(1), np.int8(0)])
    axis = f32(0.1, 0.2, 0.3, 0.4, 0.5)
    for dtype in (np.int8, np.uint8):
        zero = np.arange(5).astype(dtype)
        yield Case("QuantizeLinear", 13, np.dtype(dtype).name, [x, axis, zero], {"axis": 1})
        yield Case(
            "DequantizeLinear",
            13,
            np.dtype(dtype).name,
            [every_byte(dtype, *x), axis, zero],
            {"axis": -2},
        )
    blocks = np.linspace(0.1, 0.5, 4 * 2 * 6).astype(np.float32).reshape(4, 2, 6)
    zero = np.arange(48).astype(np.int16).reshape(4, 2, 6)
    yield Case("QuantizeLinear", 21, "blocks", [x, blocks, zero], {"axis": 1, "block_size": 3})
    sixteen = every_byte(np.int8, *x).astype(np.int16) * 100
    yield Case(
        "DequantizeLinear", 21, "blocks", [sixteen, blocks, zero], {"axis": 1, "block_size": 3}
    )
    wide = np.arange(-60, 60, dtype=np.int32).reshape(x) * 1000
    yield Case("DequantizeLinear", 10, "int32", [wide, np.float32(0.03)])
    for label, given in (
        ("plain", (3, 4)),
        ("zeros", np.zeros((2, 2), np.float32)),
        ("above", f32(1, 3)),
    ):
        yield Case("DynamicQuantizeLinear", 11, label, [given], {}, 3)


def signals() -> Iterator[Case]:
    for label, last in (("real", 1), ("complex", 2)):
        yield Case("DFT", 17, label, [(2, 9, 5, last), i64(12).reshape(())], {"axis": 1}, atol=1e-4)
        yield Case("DFT", 20, label, [(2, 9, 5, last), None, i64(-2).reshape(())], atol=1e-4)
    yield Case("DFT", 20, "onesided", [(2, 9, 1), i64(6).reshape(())], {"onesided": 1}, atol=1e-4)
    yield Case("DFT", 20, "inverse", [(2, 9, 2)], {"inverse": 1}, atol=1e-4)
    signal = [(2, 40, 1), i64(7).reshape(()), (16,)]
    for onesided in (0, 1):
        yield Case("STFT", 17, f"onesided{onesided}", signal, {"onesided": onesided}, atol=1e-4)
    for name in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        for periodic in (0, 1):
            yield Case(
                name, 17, f"periodic{periodic}", [i64(9).reshape(())], {"periodic": periodic}
            )
    edges = [np.float32(100.0), np.float32(7000.0)]
    sizes = [i64(20).reshape(()), i64(512).reshape(()), i64(16000).reshape(())]
    yield Case("MelWeightMatrix", 17, "speech", [*sizes, *edges])


def losses() -> Iterator[Case]:
    labels = i64(0, 3, 2, 1, 1, 4).reshape(2, 3)
    for reduction in ("none", "sum", "mean"):
        for name, outputs in (("NegativeLogLikelihoodLoss", 1), ("SoftmaxCrossEntropyLoss", 2)):
            attributes = {"reduction": reduction, "ignore_index": 3}
            yield Case(name, 13, reduction, [(2, 5, 3), labels, (5,)], attributes, outputs)


def attentions() -> Iterator[Case]:
    q, k, v = (2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 6)
    past = [(2, 2, 4, 8), (2, 2, 4, 6)]
    yield Case("Attention", 23, "grouped", [q, k, v])
    yield Case("Attention", 23, "past", [q, k, v, None, *past], {"is_causal": 1}, 3)
    packed = [(2, 3, 32), (2, 5, 16), (2, 5, 12)]
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    yield Case("Attention", 23, "packed", packed, {**heads, "softcap": 2.0, "scale": 0.3})
    mask = np.tril(np.ones((3, 5), np.bool_))
    yield Case("Attention", 23, "mask", [q, k, v, mask])
    for mode in range(4):
        attributes = {"qk_matmul_output_mode": mode}
        yield Case("Attention", 23, f"mode{mode}", [q, k, v, (3, 5)], attributes, 4)
    caches = [(7, 4), (7, 4), np.array([[0, 3, 6], [2, 1, 0]], np.int64)]
    for interleaved in (0, 1):
        yield Case(
            "RotaryEmbedding", 23, f"whole{interleaved}", [(2, 4, 3, 8), *caches],
            {"interleaved": interleaved},
        )  # fmt: skip
    yield Case(
        "RotaryEmbedding", 23, "part", [(2, 3, 48), *caches],
        {"rotary_embedding_dim": 8, "num_heads": 3},
    )  # fmt: skip


def all_cases() -> list[Case]:
    families = (
        convolutions, pools, normalizations, activations, recurrences, resizes, samples, integers,
        signals, losses, attentions,
    )  # fmt: skip
    return [case for family in families for case in family()]
