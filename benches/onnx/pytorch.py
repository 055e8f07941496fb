"""MiniLM and ResNet-34 as modules of PyTorch, with the weights of their ONNX files.

`worker.py` imports it in the environment of PyTorch or LiteRT, so it knows nothing of the benches.
Parameters have the names of the file; its matrices are [in, out], those of Linear [out, in].
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]  # in its own environment
from torch import nn  # type: ignore[import-not-found]
from torch.nn import functional as f  # type: ignore[import-not-found]

import onnx

WIDTH, HEADS, FFN, LAYERS = 384, 12, 1536, 6
VOCABULARY, POSITIONS, EPSILON = 30522, 512, 1e-12
BLOCKS = (3, 4, 6, 3)


class Layer(nn.Module):  # type: ignore[misc]
    """An encoder's layer: attention, then the feed-forward network, each added and normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, FFN), nn.Linear(FFN, WIDTH)
        self.first, self.second = (nn.LayerNorm(WIDTH, EPSILON) for _ in range(2))

    def forward(self, x: Any, mask: Any) -> Any:
        batch, length, _ = x.shape
        heads = (batch, length, HEADS, WIDTH // HEADS)
        q, k, v = (
            part(x).view(heads).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        y = f.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.first(x + self.dense(y.transpose(1, 2).reshape(batch, length, WIDTH)))
        return self.second(x + self.narrow(f.gelu(self.wide(x))))


class MiniLM(nn.Module):  # type: ignore[misc]
    """Tokens [batch, length] to unit embeddings [batch, 384]."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.types, self.positions = (
            nn.Embedding(rows, WIDTH) for rows in (VOCABULARY, 2, POSITIONS)
        )
        self.norm = nn.LayerNorm(WIDTH, EPSILON)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.words(input_ids) + self.types(token_type_ids) + self.positions(places)
        x = self.norm(x)
        kept = attention_mask.to(x.dtype)
        mask = (1 - kept)[:, None, None, :] * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, mask)
        mean = (x * kept[..., None]).sum(1) / kept.sum(1, keepdim=True).clamp(min=1e-9)
        return mean / mean.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def minilm_names() -> dict[str, str]:
    """The file's names by the module's."""
    names = {f"{part}s": f"embeddings.{kind}_embeddings" for part, kind in (
        ("word", "word"), ("type", "token_type"), ("position", "position"))}  # fmt: skip
    names["norm"] = "embeddings.LayerNorm"
    parts = {
        **{part: f"attention.self.{part}" for part in ("query", "key", "value")},
        "dense": "attention.output.dense", "first": "attention.output.LayerNorm",
        "wide": "intermediate.dense", "narrow": "output.dense", "second": "output.LayerNorm",
    }  # fmt: skip
    for index in range(LAYERS):
        for ours, theirs in parts.items():
            names[f"layers.{index}.{ours}"] = f"encoder.layer.{index}.{theirs}"
    return names


class ConvNorm(nn.Module):  # type: ignore[misc]
    """A convolution without bias, and its batch normalization."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x: Any) -> Any:
        return self.bn(self.conv(x))


class Block(nn.Module):  # type: ignore[misc]
    """relu(conv(relu(conv(x))) + x), with x projected where shapes differ."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = ConvNorm(inputs, outputs, 3, stride)
        self.conv2 = ConvNorm(outputs, outputs, 3, 1)
        self.downsample = ConvNorm(inputs, outputs, 1, stride) if inputs != outputs else None

    def forward(self, x: Any) -> Any:
        y = self.conv2(f.relu(self.conv1(x)))
        return f.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet34(nn.Module):  # type: ignore[misc]
    """Images [batch, 3, 224, 224] to logits [batch, 1000]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = ConvNorm(3, 64, 7, 2)
        inputs = 64
        for stage, count in enumerate(BLOCKS):
            blocks = []
            for index in range(count):
                outputs = 64 << stage
                blocks.append(Block(inputs, outputs, 2 if stage and not index else 1))
                inputs = outputs
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.classifier = nn.Linear(inputs, 1000)

    def forward(self, input: Any) -> Any:
        x = f.max_pool2d(f.relu(self.conv1(input)), 3, 2, 1)
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.classifier(x.mean((2, 3)))


def load(path: str) -> Any:
    """The module for `minilm.onnx` or `resnet-34.onnx`, with its weights, for inference.

    Raises
    ------
    RuntimeError, KeyError
        A weight is missing or has another shape.
    """
    graph = onnx.load(path).graph
    arrays = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    text = "embeddings.word_embeddings.weight" in arrays
    module, state = MiniLM() if text else ResNet34(), {}
    for name, value in module.state_dict().items():
        owner, _, part = name.rpartition(".")
        if part == "num_batches_tracked":
            state[name] = value
            continue
        theirs = minilm_names()[owner] if text else owner.removesuffix(".conv")
        array = arrays[f"{theirs}.{part}"]
        matrix = text and isinstance(module.get_submodule(owner), nn.Linear) and array.ndim == 2
        state[name] = torch.from_numpy(np.ascontiguousarray(array.T if matrix else array))
    module.load_state_dict(state)
    return module.eval()
