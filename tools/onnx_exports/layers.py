"""Small networks of plain layers: recurrent, one- and three-dimensional, generating, detecting."""

from __future__ import annotations

import torch
from tools.onnx_exports.registry import Inputs, model
from torch import nn
from torch.nn import functional

Made = tuple[nn.Module, Inputs]


class First(nn.Module):
    """A recurrent layer, without its last state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs of all steps."""
        return self.layer(x)[0]


@model("lstm", script=True)
def lstm() -> Made:
    """Two layers of 256."""
    layer = nn.LSTM(128, 256, num_layers=2, batch_first=True)
    return First(layer), {"x": torch.randn(1, 100, 128)}


@model("lstm-both-ways", script=True)
def lstm_both_ways() -> Made:
    """As taggers have it."""
    return First(nn.LSTM(128, 128, bidirectional=True)), {"x": torch.randn(100, 4, 128)}


@model("gru")
def gru() -> Made:
    """One layer of 256."""
    return First(nn.GRU(128, 256, batch_first=True)), {"x": torch.randn(1, 100, 128)}


class Residual3d(nn.Sequential):
    """Two three-dimensional convolutions, and what went in."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum."""
        return torch.relu(x + super().forward(x))


@model("conv3d")
def conv3d() -> Made:
    """For scans: 3 x 3 x 3 with pooling."""

    def block(n: int) -> nn.Module:
        half = [nn.Conv3d(n, n, 3, padding=1), nn.BatchNorm3d(n)]
        return Residual3d(*half, nn.ReLU(), nn.Conv3d(n, n, 3, padding=1), nn.BatchNorm3d(n))

    net = nn.Sequential(
        nn.Conv3d(1, 16, 3, padding=1), block(16), nn.MaxPool3d(2), nn.Conv3d(16, 32, 3, padding=1),
        block(32), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    return net, {"x": torch.randn(1, 1, 16, 32, 32)}


def double(inside: int, outside: int, norm: type[nn.Module] = nn.BatchNorm2d) -> nn.Sequential:
    """Two convolutions with norms."""
    first = [nn.Conv2d(inside, outside, 3, padding=1), norm(outside), nn.ReLU()]
    return nn.Sequential(
        *first, nn.Conv2d(outside, outside, 3, padding=1), norm(outside), nn.ReLU()
    )


class UNet(nn.Module):
    """Down, up by transposed convolutions or by interpolation, and concatenation."""

    def __init__(self, width: int, *, transposed: bool) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(map(double, [3, *sizes[:-1]], sizes))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(2 * n, n, 2, stride=2)
            if transposed
            else nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(2 * n, n, 1))
            for n in sizes[-2::-1]
        )
        self.mix = nn.ModuleList(double(2 * n, n) for n in sizes[-2::-1])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of two classes."""
        kept = []
        for number, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for up, mix, skip in zip(self.up, self.mix, kept[-2::-1], strict=True):
            x = mix(torch.cat([skip, up(x)], 1))
        return self.head(x)


@model("unet")
def unet() -> Made:
    """With transposed convolutions."""
    return UNet(16, transposed=True), {"x": torch.randn(1, 3, 128, 128)}


@model("unet-bilinear", script=True)
def unet_bilinear() -> Made:
    """With bilinear interpolation."""
    return UNet(16, transposed=False), {"x": torch.randn(1, 3, 128, 128)}


class Styled(nn.Sequential):
    """A residual block of style transfer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum."""
        return x + super().forward(x)


def reflected(inside: int, outside: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    """A convolution with reflected edges, and an instance norm."""
    pad = nn.ReflectionPad2d(kernel // 2)
    norm = nn.InstanceNorm2d(outside, affine=True)
    return [pad, nn.Conv2d(inside, outside, kernel, stride), norm]


@model("style-transfer")
def style_transfer() -> Made:
    """The network of PyTorch's fast_neural_style, with half its width."""
    relu = nn.ReLU()
    blocks = [Styled(*reflected(64, 64, 3), relu, *reflected(64, 64, 3)) for _ in range(5)]
    net = nn.Sequential(
        *reflected(3, 16, 9), relu, *reflected(16, 32, 3, 2), relu, *reflected(32, 64, 3, 2), relu,
        *blocks, nn.Upsample(scale_factor=2), *reflected(64, 32, 3), relu,
        nn.Upsample(scale_factor=2), *reflected(32, 16, 3), relu, *reflected(16, 3, 9)[:2],
    )  # fmt: skip
    return net, {"x": torch.rand(1, 3, 128, 128)}


@model("super-resolution")
def super_resolution() -> Made:
    """ESPCN: convolutions and a pixel shuffle."""
    net = nn.Sequential(
        nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(),
        nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3),
    )  # fmt: skip
    return net, {"x": torch.rand(1, 1, 112, 112)}


@model("gan-generator")
def gan_generator() -> Made:
    """DCGAN: transposed convolutions of stride 2."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(64, 256, 4), nn.BatchNorm2d(256), nn.ReLU()]
    for n in (256, 128, 64):
        layers += [nn.ConvTranspose2d(n, n // 2, 4, 2, 1), nn.BatchNorm2d(n // 2), nn.ReLU()]
    net = nn.Sequential(*layers, nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())
    return net, {"z": torch.randn(1, 64, 1, 1)}


class Dilated(nn.Sequential):
    """Two dilated convolutions over time, and what went in."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum."""
        return torch.relu(x + super().forward(x))


@model("tcn")
def tcn() -> Made:
    """A temporal convolutional network: dilations 1 to 32."""
    blocks = []
    for dilation in (1, 2, 4, 8, 16, 32):
        convs = [nn.Conv1d(64, 64, 3, padding=dilation, dilation=dilation) for _ in range(2)]
        blocks.append(Dilated(convs[0], nn.ReLU(), convs[1]))
    return nn.Sequential(nn.Conv1d(40, 64, 1), *blocks), {"x": torch.randn(1, 40, 400)}


@model("keywords")
def keywords() -> Made:
    """A DS-CNN for keywords: depthwise and 1 x 1 convolutions."""
    layers: list[nn.Module] = [nn.Conv2d(1, 64, (10, 4), 2, (5, 1)), nn.BatchNorm2d(64), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.BatchNorm2d(64), nn.ReLU()]
        layers += [nn.Conv2d(64, 64, 1), nn.BatchNorm2d(64), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))
    return net, {"x": torch.randn(1, 1, 49, 10)}


@model("mlp")
def mlp() -> Made:
    """Two hidden layers: a model for tables."""
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
    return nn.Sequential(net, nn.Linear(256, 10)), {"x": torch.randn(1, 64)}


@model("transformer-encoder")
def transformer_encoder() -> Made:
    """torch's own, before its norms."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), {
        "x": torch.randn(1, 64, 128)
    }


class SpatialTransformer(nn.Module):
    """Resamples an image by an affine map that a network finds."""

    def __init__(self) -> None:
        super().__init__()
        self.find = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
            nn.Linear(128, 6),
        )  # fmt: skip
        self.net = double(3, 16, nn.InstanceNorm2d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features of the resampled image."""
        grid = functional.affine_grid(self.find(x).view(-1, 2, 3), list(x.shape), False)
        return self.net(functional.grid_sample(x, grid, align_corners=False))


@model("spatial-transformer")
def spatial_transformer() -> Made:
    """Affine grid and GridSample."""
    return SpatialTransformer(), {"x": torch.rand(1, 3, 96, 96)}


class DiffusionBlock(nn.Module):
    """A residual block of a diffusion model: GroupNorm, SiLU, time, and attention."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(8, n) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(n, n, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(64, n)
        self.attention = nn.MultiheadAttention(n, 4, batch_first=True)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """The block's output, as large as x."""
        y = self.convs[0](functional.silu(self.norms[0](x))) + self.time(t)[:, :, None, None]
        x = x + self.convs[1](functional.silu(self.norms[1](y)))
        rows = self.norms[2](x).flatten(2).transpose(1, 2)
        mixed = self.attention(rows, rows, rows, need_weights=False)[0]
        return x + mixed.transpose(1, 2).reshape(x.shape)


class Diffusion(nn.Module):
    """A small denoising U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Conv2d(4, 64, 3, padding=1), nn.Conv2d(64, 4, 3, padding=1)
        self.blocks = nn.ModuleList(DiffusionBlock(64) for _ in range(3))
        self.down = nn.Conv2d(64, 64, 3, 2, 1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """The noise."""
        angles = t[:, None] * torch.exp(-torch.arange(32) / 4)
        time = torch.cat([angles.sin(), angles.cos()], 1)
        first = self.blocks[0](self.into(x), time)
        y = self.blocks[1](self.down(first), time)
        return self.out(self.blocks[2](functional.interpolate(y, scale_factor=2.0) + first, time))


@model("diffusion")
def diffusion() -> Made:
    """A latent of 32 x 32."""
    return Diffusion(), {"x": torch.randn(1, 4, 32, 32), "t": torch.tensor([7.0])}
