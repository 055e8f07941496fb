"""ResNet of basic blocks (He et al. 2016) with random weights, as torchvision's is exported."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
from tools.onnx_models.convolution import Map, Network


@dataclass(frozen=True)
class ResNetConfig:
    """Sizes; `folded` puts the batch normalizations into the convolutions."""

    blocks: tuple[int, ...] = (3, 4, 6, 3)  # of each stage; a stage doubles the channels
    width: int = 64  # channels of the first stage
    size: int = 224  # of the image
    classes: int = 1000
    opset: int = 17
    folded: bool = False
    seed: int = 0


SIZES = {
    "resnet-34": ResNetConfig(),
    "resnet-small": ResNetConfig((1, 1, 1), width=16, size=64, classes=10),
}


def _block(net: Network, x: Map, name: str, outputs: int, stride: int) -> Map:
    """relu(conv(relu(conv(x))) + x), with x projected where shapes differ."""
    with net.graph.scope(name):
        y = net.relu(net.conv_norm(x, f"{name}.conv1", outputs, 3, stride))
        y = net.conv_norm(y, f"{name}.conv2", outputs, 3)
        if stride != 1 or x.channels != outputs:
            x = net.conv_norm(x, f"{name}.downsample", outputs, 1, stride)
        return net.relu(net.add(y, x))


def build(config: ResNetConfig) -> onnx.ModelProto:
    """The model: `input` [batch, 3, size, size] to `output` [batch, classes], logits."""
    c = config
    net = Network("resnet", c.size, c.opset, c.seed, folded=c.folded)
    x = net.relu(net.conv_norm(net.image, "conv1", c.width, 7, 2))
    pooled = net.graph.node(
        "MaxPool", x.name, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    x = Map(pooled, x.mean, x.variance)
    for stage, count in enumerate(c.blocks):
        for index in range(count):
            stride = 2 if stage and not index else 1
            x = _block(net, x, f"layer{stage + 1}.{index}", c.width << stage, stride)
    return net.head(x, c.classes)
