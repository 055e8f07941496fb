"""Compares every architecture with `transformers` on tiny models, and writes the tests' goldens.

    make judge                  # all, or some: python -m tests.judges.architectures llama gpt2

PyTorch takes minutes to install, so it has its own virtual environment, and `make test` compares
with the goldens.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tests.text.architectures import models, rwkv

import halfbyte
from halfbyte.formats.huggingface.wrappers import WRAPPERS

BOUND = 1e-4  # of the largest logit
APART = ("rwkv7",)  # not in `transformers`


def built(name: str) -> torch.nn.Module:
    """The model by `transformers`, in float32, with our weights."""
    values = models.config(name)
    config = transformers.AutoConfig.for_model(**values)
    twice = bool(values.get("alibi"))  # Falcon's eager attention adds its slopes twice
    config._attn_implementation = "sdpa" if twice else "eager"
    of_images = values["model_type"] in WRAPPERS
    auto = getattr(transformers, f"AutoModelFor{'ImageTextToText' if of_images else 'CausalLM'}")
    model = auto.from_config(config, dtype=torch.float32).eval()
    shapes = shapes_of(model)
    own = {n: torch.from_numpy(models.values(f"{name}/{n}", tuple(s))) for n, s in shapes.items()}
    if getattr(config, "tie_word_embeddings", False):
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        of = {id(module): f"{n}.weight" for n, module in model.named_modules()}
        own[of[id(head)]] = own[of[id(embedding)]]
    model.load_state_dict(own)
    return model


def shapes_of(model: torch.nn.Module) -> dict[str, list[int]]:
    """Shapes of a model's tensors."""
    return {n: list(t.shape) for n, t in model.state_dict().items()}


def reference(name: str) -> tuple[dict[str, list[int]], models.F32Array]:
    """Shapes of all tensors and logits [tokens, vocabulary] by `transformers`, in float32.

    It does not have RWKV 7, which `rwkv` computes, and llama.cpp judges.
    """
    if name in APART:
        return rwkv.SHAPES, rwkv.logits()
    model = built(name)
    with torch.no_grad():
        logits = model(torch.tensor([models.ids(name)])).logits[0]
    return shapes_of(model), np.asarray(logits)


def judged(name: str, path: Path, expected: models.F32Array, **options: Any) -> bool:
    """Whether both backends agree with the reference; prints a line of the table."""
    differences = {}
    for backend in ("numpy", "native"):
        with halfbyte.load(path, backend=backend, **options) as model:
            logits = model.logits(models.ids(name))
        differences[backend] = models.largest_difference(logits, expected)
    print(f"  {name:<20}" + "".join(f"{b:>8} {d:.1e}" for b, d in differences.items()))
    return max(differences.values()) < BOUND


def main() -> int:
    """Print the table and write goldens; 1 if a difference is too large."""
    print(f"largest difference of logits, relative to the largest; transformers "
          f"{transformers.__version__}, torch {torch.__version__}")  # fmt: skip
    failed = False
    for name in sys.argv[1:] or models.CONFIGS:
        shapes, expected = reference(name)
        models.write_golden(name, shapes)
        with tempfile.TemporaryDirectory() as folder:
            agrees = judged(name, models.write(Path(folder) / f"{name}.gguf", name), expected)
        failed |= not agrees
        if agrees:
            models.write_golden(name, shapes, expected)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
