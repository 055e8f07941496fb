"""Networks for images."""

from __future__ import annotations

import timm
import torch
import torchvision
import transformers
from tools.onnx_exports.registry import Inputs, model, part
from torch import nn
from torch.nn import functional

Made = tuple[nn.Module, Inputs]
SCRIPTED = ("resnet18", "mobilenet_v3_small", "densenet121", "swin_t")
TORCHVISION = {  # by the width of the image
    "resnet18": 224, "mobilenet_v3_small": 224, "efficientnet_b0": 224, "shufflenet_v2_x1_0": 224,
    "squeezenet1_1": 224, "densenet121": 128, "regnet_y_400mf": 224, "convnext_tiny": 128,
    "swin_t": 128, "googlenet": 128,
}  # fmt: skip
TIMM = {
    "vit_tiny_patch16_224": 224, "mobilevit_xxs": 192, "ghostnet_100": 224, "repvgg_a0": 192,
    "fastvit_t8": 192, "levit_128s": 224, "poolformer_s12": 128, "edgenext_xx_small": 192,
    "mixer_s32_224": 224, "efficientvit_b0": 224, "tf_efficientnetv2_b0": 192,
}  # fmt: skip


def image(width: int, rows: int = 1) -> Inputs:
    """Random pixels."""
    return {"pixel_values": torch.randn(rows, 3, width, width)}


def _classifier(name: str, width: int) -> Made:
    if name in TIMM:
        return timm.create_model(name, pretrained=False), image(width)
    more = {"init_weights": True, "aux_logits": False} if name == "googlenet" else {}
    return torchvision.models.get_model(name, weights=None, **more), image(width)


for _name, _width in {**TORCHVISION, **TIMM}.items():
    model(_name, script=_name in SCRIPTED)(lambda n=_name, w=_width: _classifier(n, w))  # type: ignore[misc]


@model("deeplab")
def deeplab() -> Made:
    """DeepLabV3 on MobileNetV3: dilated convolutions."""
    net = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(
        weights=None, weights_backbone=None
    )
    return Out(net), image(192)


class Out(nn.Module):
    """A segmenting model's scores."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """By class and pixel."""
        return self.net(x)["out"]


@model("ssdlite", script=True)
def ssdlite() -> Made:
    """SSDlite on MobileNetV3, with TopK and NonMaxSuppression."""
    net = torchvision.models.detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, score_thresh=0.011
    )
    return net, image(320)


@model("video-resnet")
def video_resnet() -> Made:
    """(2+1)D convolutions."""
    net = torchvision.models.video.r2plus1d_18(weights=None)
    return net, {"frames": torch.randn(1, 3, 4, 56, 56)}


@model("detr")
def detr() -> Made:
    """DETR with a small backbone."""
    config = transformers.DetrConfig(
        d_model=128, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=256, decoder_ffn_dim=256,
        num_queries=50, use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
        backbone_config=transformers.ResNetConfig(
            embedding_size=32, hidden_sizes=[32, 64, 128, 256], depths=[1, 1, 1, 1],
            layer_type="basic", out_features=["stage4"],
        ),
    )  # fmt: skip
    return part(transformers.DetrForObjectDetection(config), image(256), "pred_boxes")


@model("segformer")
def segformer() -> Made:
    """SegFormer-B0."""
    return part(
        transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig()),
        image(192), "logits",
    )  # fmt: skip


def _dino(**options: object) -> transformers.Dinov2Config:
    return transformers.Dinov2Config(
        hidden_size=192, num_hidden_layers=6, num_attention_heads=3, image_size=224, **options
    )


@model("depth-anything")
def depth_anything() -> Made:
    """DepthAnything on a small DINOv2."""
    stages = ["stage2", "stage4", "stage5", "stage6"]
    config = transformers.DepthAnythingConfig(
        backbone_config=_dino(
            out_features=stages, reshape_hidden_states=False, apply_layernorm=True
        ),
        reassemble_hidden_size=192, neck_hidden_sizes=[24, 48, 96, 192], fusion_hidden_size=32,
        head_hidden_size=16,
    )  # fmt: skip
    net = transformers.DepthAnythingForDepthEstimation(config)
    return part(net, image(168), "predicted_depth")


@model("dinov2")
def dinov2() -> Made:
    """Six layers."""
    return part(transformers.Dinov2Model(_dino()), image(224), "last_hidden_state")


@model("clip-vision", script=True)
def clip_vision() -> Made:
    """Six layers of CLIP."""
    config = transformers.CLIPVisionConfig(
        hidden_size=256, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=4
    )
    return part(transformers.CLIPVisionModel(config), image(224), "last_hidden_state")


@model("sam-encoder")
def sam_encoder() -> Made:
    """SAM's encoder: windows, and relative positions."""
    config = transformers.SamVisionConfig(
        hidden_size=192, output_channels=64, num_hidden_layers=4, num_attention_heads=4,
        image_size=256, window_size=7, global_attn_indexes=[1, 3], mlp_dim=768,
    )  # fmt: skip
    return part(transformers.SamVisionModel(config), image(256), "last_hidden_state")


@model("yolos")
def yolos() -> Made:
    """A plain transformer that detects."""
    config = transformers.YolosConfig(
        hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768,
        image_size=[224, 224], num_detection_tokens=50,
    )  # fmt: skip
    return part(transformers.YolosForObjectDetection(config), image(224), "pred_boxes")


# ---- YOLO ----------------------------------------------------------------------------------------


def conv(inside: int, outside: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    """A convolution, a norm and SiLU."""
    layer = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outside), nn.SiLU())


class C2f(nn.Module):
    """Split, bottlenecks, and the concatenation of all."""

    def __init__(self, inside: int, outside: int, *, shortcut: bool = True) -> None:
        super().__init__()
        half = outside // 2
        self.first, self.last = conv(inside, outside), conv(3 * half, outside)
        self.inner = nn.Sequential(conv(half, half, 3), conv(half, half, 3))
        self.shortcut = shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As wide as x."""
        a, b = self.first(x).chunk(2, 1)
        c = self.inner(b)
        return self.last(torch.cat([a, b, b + c if self.shortcut else c], 1))


class Yolo(nn.Module):
    """YOLOv8: backbone, pyramid, and a head that decodes boxes of distributions."""

    def __init__(self, n: int = 16, classes: int = 80) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, n, 3, 2), conv(n, 2 * n, 3, 2), C2f(2 * n, 2 * n))
        self.stages = nn.ModuleList(
            nn.Sequential(conv(m, 2 * m, 3, 2), C2f(2 * m, 2 * m)) for m in (2 * n, 4 * n, 8 * n)
        )
        self.squeeze, self.spread = conv(16 * n, 8 * n), conv(32 * n, 16 * n)
        self.up = nn.ModuleList(
            [C2f(24 * n, 8 * n, shortcut=False), C2f(12 * n, 4 * n, shortcut=False)]
        )
        self.down = nn.ModuleList([conv(4 * n, 4 * n, 3, 2), conv(8 * n, 8 * n, 3, 2)])
        self.mix = nn.ModuleList(
            [C2f(12 * n, 8 * n, shortcut=False), C2f(24 * n, 16 * n, shortcut=False)]
        )
        widths = (4 * n, 8 * n, 16 * n)
        self.boxes = nn.ModuleList(
            nn.Sequential(conv(m, 64, 3), nn.Conv2d(64, 64, 1)) for m in widths
        )
        self.scores = nn.ModuleList(
            nn.Sequential(conv(m, 80, 3), nn.Conv2d(80, classes, 1)) for m in widths
        )
        self.register_buffer("bins", torch.arange(16.0).view(1, 16, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Boxes and scores, of shape (rows, 4 + classes, places)."""
        kept = [self.stem(x)]
        for stage in self.stages:
            kept.append(stage(kept[-1]))
        _, small, middle, last = kept
        y = self.squeeze(last)
        pooled = [y]
        for _ in range(3):
            pooled.append(functional.max_pool2d(pooled[-1], 5, 1, 2))
        top = self.spread(torch.cat(pooled, 1))
        a = self.up[0](torch.cat([functional.interpolate(top, scale_factor=2.0), middle], 1))
        b = self.up[1](torch.cat([functional.interpolate(a, scale_factor=2.0), small], 1))
        c = self.mix[0](torch.cat([self.down[0](b), a], 1))
        d = self.mix[1](torch.cat([self.down[1](c), top], 1))
        boxes = torch.cat(
            [head(m).flatten(2) for head, m in zip(self.boxes, (b, c, d), strict=True)], 2
        )
        scores = torch.cat(
            [head(m).flatten(2) for head, m in zip(self.scores, (b, c, d), strict=True)], 2
        )
        rows, _, places = boxes.shape
        chances = boxes.view(rows, 4, 16, places).transpose(1, 2).softmax(1)
        sides = (chances * self.bins).sum(1)
        return torch.cat([sides, scores.sigmoid()], 1)


@model("yolo")
def yolo() -> Made:
    """The small one."""
    return Yolo(), image(256)
