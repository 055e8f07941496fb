"""Write MiniLM or ResNet-34 as LiteRT's file, from the ONNX file; it runs in LiteRT's environment.

    python tflite.py MODEL.onnx fp32|int8 OUTPUT.tflite

A text model has a signature per length, `length_16` and `length_128`. In int8 the weights of
products are int8 by channel and activations become int8 as the model runs (`dynamic_wi8_afp32`).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import litert_torch  # type: ignore[import-not-found]  # in its own environment
import pytorch
import torch  # type: ignore[import-not-found]

LENGTHS = (16, 128)
IMAGE = (1, 3, 224, 224)


def convert(module: torch.nn.Module, target: Path) -> None:
    """In float32."""
    if isinstance(module, pytorch.ResNet34):
        litert_torch.convert(module, (torch.zeros(IMAGE),)).export(str(target))
        return
    converter = litert_torch
    for length in LENGTHS:
        row = torch.ones((1, length), dtype=torch.int64)
        kept, types = torch.ones_like(row), torch.zeros_like(row)  # one tensor would be one input
        feeds = {"input_ids": row, "attention_mask": kept, "token_type_ids": types}
        converter = converter.signature(f"length_{length}", module, sample_kwargs=feeds)
    converter.convert().export(str(target))


def quantize(source: Path, target: Path) -> None:
    """To dynamic int8."""
    from ai_edge_quantizer import quantizer, recipe  # type: ignore[import-not-found]

    quantizer.Quantizer(str(source), recipe.dynamic_wi8_afp32()).quantize().export_model(
        str(target)
    )


def main() -> None:
    """The command line."""
    path, precision, output = sys.argv[1:]
    with tempfile.TemporaryDirectory(dir=Path(output).parent) as folder:
        floats, integers = Path(folder) / "fp32.tflite", Path(folder) / "int8.tflite"
        convert(pytorch.load(path), floats)
        if precision == "int8":
            quantize(floats, integers)
        (integers if precision == "int8" else floats).rename(output)


if __name__ == "__main__":
    main()
