"""The shipped model in every type: size, held-out perplexity, divergence from llama.cpp.

    python -m benches.quality        from the repository's root

Perplexity is per token over the held-out stories, each after BOS and with its EOS, as the training
tool computes it; the divergence is the mean KL over 200 generated positions of the same file's
token probabilities in llama.cpp and here.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from tests.judges.test_llama_cpp import STEPS, as_f32, distributions, divergence, log_softmax

import halfbyte
from halfbyte.quantize import quantize_file
from halfbyte.text.describe import bits_per_weight

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "runtime/halfbyte/data/storyteller.bin"
HELDOUT = ROOT / "tests/data/storyteller-heldout.txt"


def row(kind: str, path: Path) -> str:
    """A line of the table."""
    ids, theirs = distributions(path, STEPS)
    stories = HELDOUT.read_text(encoding="utf-8").strip().split("\n\n")
    with halfbyte.load(path) as model:
        kl = divergence(theirs, log_softmax(model.logits(ids[:-1])))
        losses = []
        for story in stories:
            tokens = [*model.tokenizer.encode(story), model.tokenizer.eos]
            losses.append(model.token_losses(tokens[: model.context + 1]))
        perplexity = np.exp(np.concatenate(losses).mean())
        bits, size = bits_per_weight(model.file), path.stat().st_size
    return f"| {kind} | {bits:.2f} | {size / 1e6:.2f} MB | {perplexity:.4f} | {kl:.1e} |"


def main() -> None:
    """Print the table."""
    print("| type | bits per weight | size | perplexity | KL to llama.cpp |")
    print("|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("fp32", "fp16", "bf16", "int8", "int4"):
            path = Path(folder) / f"{kind}.gguf"
            if kind == "fp32":
                as_f32(MODEL, path)
            else:
                quantize_file(MODEL, kind, path)
            print(row(kind, path), flush=True)


if __name__ == "__main__":
    main()
