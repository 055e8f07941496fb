"""MobileNetV2 (Sandler et al. 2018) with random weights, as torchvision's is exported."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
from tools.onnx_models.convolution import Map, Network

# expansion, channels, repetitions, stride of the first
_STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip


@dataclass(frozen=True)
class MobileNetConfig:
    """Sizes; `folded` puts the batch normalizations into the convolutions."""

    width: float = 1.0  # factor of every layer's channels
    size: int = 224  # of the image
    classes: int = 1000
    opset: int = 17
    folded: bool = False
    seed: int = 0


SIZES = {
    "mobilenet-v2": MobileNetConfig(),
    "mobilenet-v2-small": MobileNetConfig(width=0.25, size=64, classes=10),
}


def _rounded(channels: float) -> int:
    """Rounded to a multiple of 8, to at least 8 and by at most 10 % down."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8


def _block(net: Network, x: Map, name: str, outputs: int, stride: int, expansion: int) -> Map:
    """Inverted residual: expand, depthwise convolution, project; added to inputs of its shape."""
    wide, y = x.channels * expansion, x
    with net.graph.scope(name):
        if expansion != 1:
            y = net.relu6(net.conv_norm(y, f"{name}.expand", wide, 1))
        y = net.relu6(net.conv_norm(y, f"{name}.depthwise", wide, 3, stride, groups=wide))
        y = net.conv_norm(y, f"{name}.project", outputs, 1)
        return net.add(x, y) if stride == 1 and x.channels == outputs else y


def build(config: MobileNetConfig) -> onnx.ModelProto:
    """The model: `input` [batch, 3, size, size] to `output` [batch, classes], logits."""
    c = config
    net = Network("mobilenet-v2", c.size, c.opset, c.seed, folded=c.folded)
    x = net.relu6(net.conv_norm(net.image, "features.0", _rounded(32 * c.width), 3, 2))
    index = 1
    for expansion, channels, count, first in _STAGES:
        for repetition in range(count):
            stride = first if repetition == 0 else 1
            x = _block(net, x, f"features.{index}", _rounded(channels * c.width), stride, expansion)
            index += 1
    last = _rounded(1280 * max(1.0, c.width))
    return net.head(net.relu6(net.conv_norm(x, f"features.{index}", last, 1)), c.classes)
