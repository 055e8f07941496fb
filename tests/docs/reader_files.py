"""Small files in place of those that a reader of the documentation has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tests.formats.folders import tokenizer_json, write_folder, write_json
from tests.text import adapters
from tests.text.chat.models import sentencepiece
from tests.text.encoders import encoders
from tools.onnx_models import make, save

from halfbyte.quantize import quantize_file, quantize_onnx
from halfbyte.quantize.onnx import Options
from halfbyte.text.opening import open_model

TOKENS = ("input_ids", "attention_mask", "token_type_ids")


def write_files(folder: Path, storyteller: Path) -> None:
    """Write all files that commands and programs of the pages read."""
    _write_language_models(folder, storyteller)
    _write_graphs(folder)
    (folder / "prompt.txt").write_text("Once upon a time")
    stories = (Path(__file__).parents[1] / "data/storyteller-heldout.txt").read_text("utf-8")
    (folder / "book.txt").write_text(stories[:1500], "utf-8")
    write_json(folder / "tokenizer.json", tokenizer_json())


def _write_language_models(folder: Path, storyteller: Path) -> None:
    quantize_file(storyteller, "fp16", folder / "model.gguf")
    quantize_file(storyteller, "int4", folder / "model-int4.gguf")
    names = [f"blk.{layer}.attn_q.weight" for layer in range(2)]
    shapes = {
        n: t.shape for n, t in open_model(folder / "model.gguf").tensors.items() if n in names
    }
    adapters.write_gguf_adapter(folder / "pirate.gguf", adapters.changes_of(shapes, 4))
    sentencepiece(folder / "instruct.gguf")
    (folder / "path/to").mkdir(parents=True)
    encoders.write(folder / "path/to/all-MiniLM-L6-v2", "bert")
    quantize_file(folder / "path/to/all-MiniLM-L6-v2", "int8", folder / "encoder.gguf")
    ranks = encoders.write(folder / "path/to/ms-marco-MiniLM", "bert-rank")
    quantize_file(ranks, "int8", folder / "reranker.gguf")
    (folder / "lines.txt").write_text("Cats eat fish.\nThe sky is blue.\n")
    write_folder(folder / "path/to/SmolLM2-135M-Instruct", max_position_embeddings=64)


def _write_graphs(folder: Path) -> None:
    save(make("bert-small"), folder / "encoder.onnx")
    quantize_onnx(folder / "encoder.onnx", folder / "encoder-int8.onnx", Options(type="int8"))
    save(make("mobilenet-v2-small"), folder / "classifier.onnx")
    rng = np.random.default_rng(0)
    samples: dict[str, Any] = {name: rng.integers(0, 2, (4, 1, 16)) for name in TOKENS}
    np.savez(folder / "samples.npz", **samples)
    inputs: dict[str, Any] = {name: values[0] for name, values in samples.items()}
    np.savez(folder / "inputs.npz", **inputs)
    (folder / "pictures").mkdir()
    for name in ("picture.bmp", "pictures/1.bmp", "pictures/2.bmp"):
        pixels = rng.integers(0, 256, (64, 64, 3), np.uint8)
        Image.fromarray(pixels).save(folder / name)
