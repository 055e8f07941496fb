"""The part shared by convolutional networks: a convolution with its batch normalization.

Weights are random; the statistics of a normalization are those that its input would have if the
elements of the convolution's input were independent, so that activations keep their size through
all layers. To know them, a `Map` carries the mean and the variance of each channel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from tools.onnx_models.builder import FLOAT, GraphBuilder
from tools.onnx_models.weights import F32Array, Random

EPSILON = 1e-5
_ERF = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True)
class Map:
    """A feature map [batch, channels, height, width]: its tensor, and statistics of its values."""

    name: str
    mean: F32Array  # [channels]
    variance: F32Array  # [channels]

    @property
    def channels(self) -> int:
        """The number of channels."""
        return len(self.mean)


class Network:
    """A graph from an image [batch, 3, size, size] to logits [batch, classes]."""

    def __init__(self, name: str, size: int, opset: int, seed: int, *, folded: bool) -> None:
        self.graph = GraphBuilder(name, opset)
        self._folded, self._weights = folded, Random(seed)
        self.graph.input("input", FLOAT, ["batch", 3, size, size])
        self.image = Map("input", np.zeros(3, np.float32), np.ones(3, np.float32))

    def conv_norm(
        self, x: Map, name: str, outputs: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> Map:
        """Convolution without bias, padded by half a kernel, and BatchNormalization; or one
        convolution with both in it, where folded. Kernels are He et al.'s (2015)."""
        inputs = x.channels // groups
        fan_in = inputs * kernel * kernel
        weight = self._weights.take(
            f"{name}.weight", (outputs, inputs, kernel, kernel), (2 / fan_in) ** 0.5
        )
        mean, variance = _through(weight, x, groups)
        gain = self._weights.take(f"{name}.bn.weight", (outputs,), mean=1.0)
        shift = self._weights.take(f"{name}.bn.bias", (outputs,))
        how: dict[str, Any] = {
            "kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4,
            "dilations": [1, 1], "group": groups,
        }  # fmt: skip
        g = self.graph
        if self._folded:
            factor = gain / np.sqrt(variance + np.float32(EPSILON))
            names = [
                g.weight(f"{name}.weight", weight * factor[:, None, None, None]),
                g.weight(f"{name}.bias", shift - mean * factor),
            ]
            return Map(g.node("Conv", x.name, *names, **how), shift, gain**2)
        y = g.node("Conv", x.name, g.weight(f"{name}.weight", weight), **how)
        parts = {"weight": gain, "bias": shift, "running_mean": mean, "running_var": variance}
        names = [g.weight(f"{name}.bn.{part}", values) for part, values in parts.items()]
        return Map(g.node("BatchNormalization", y, *names, epsilon=EPSILON), shift, gain**2)

    def relu(self, x: Map) -> Map:
        """max(x, 0)."""
        return _rectified(x, self.graph.node("Relu", x.name))

    def relu6(self, x: Map) -> Map:
        """min(max(x, 0), 6): a Clip."""
        g = self.graph
        return _rectified(x, g.node("Clip", x.name, g.constant(0.0), g.constant(6.0)))

    def add(self, x: Map, y: Map) -> Map:
        """The elementwise sum."""
        name = self.graph.node("Add", x.name, y.name)
        return Map(name, x.mean + y.mean, x.variance + y.variance)

    def head(self, x: Map, classes: int) -> onnx.ModelProto:
        """GlobalAveragePool, Flatten and Gemm for the output; returns the whole model."""
        g = self.graph
        y = g.node("Flatten", g.node("GlobalAveragePool", x.name), axis=1)
        weight = self._weights.take("classifier.weight", (classes, x.channels), x.channels**-0.5)
        bias = self._weights.take("classifier.bias", (classes,))
        parameters = g.weight("classifier.weight", weight), g.weight("classifier.bias", bias)
        g.node("Gemm", y, *parameters, transB=1, output="output")
        g.output("output", FLOAT, ["batch", classes])
        return g.model()


def _through(weight: F32Array, x: Map, groups: int) -> tuple[F32Array, F32Array]:
    """Mean and variance of each channel of a convolution, of independent inputs."""
    taps = weight.reshape(groups, -1, *weight.shape[1:]).astype(np.float64)
    mean = np.einsum("goihw,gi->go", taps, x.mean.reshape(groups, -1))
    variance = np.einsum("goihw,gi->go", taps**2, x.variance.reshape(groups, -1))
    return mean.reshape(-1).astype(np.float32), variance.reshape(-1).astype(np.float32)


def _rectified(x: Map, name: str) -> Map:
    """Mean and variance of max(x, 0) where x is normal."""
    mean, deviation = x.mean.astype(np.float64), np.sqrt(x.variance.astype(np.float64))
    ratio = mean / deviation
    density = np.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
    below = (1 + _ERF(ratio / math.sqrt(2))) / 2
    first = mean * below + deviation * density
    second = (mean**2 + deviation**2) * below + mean * deviation * density
    variance = second - first**2
    return Map(name, first.astype(np.float32), variance.astype(np.float32))
