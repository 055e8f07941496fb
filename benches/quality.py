"""The shipped model in every type: size, held-out perplexity, divergence from llama.cpp.

    python -m benches.quality [--json FILE]

Perplexity is per token over the held-out stories, each after BOS and with its EOS, as the training
tool computes it. The divergence is the mean KL over 200 generated positions, from llama.cpp's token
probabilities to halfbyte's on the same file.
"""

from __future__ import annotations

import argparse
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from benches import tables
from benches.figures import add_json_option, pytest_json, write_json
from tests.judges.test_llama_cpp import as_f32, distributions, divergence, log_softmax

import halfbyte
from halfbyte.quantize import quantize_file
from halfbyte.text.describe import bits_per_weight

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "runtime/halfbyte/data/storyteller.bin"
HELDOUT = ROOT / "tests/data/storyteller-heldout.txt"
POSITIONS = 200


def measure(preset: str, path: Path) -> dict[str, Any]:
    """The figures of one file."""
    ids, expected = distributions(path, POSITIONS)
    stories = HELDOUT.read_text(encoding="utf-8").strip().split("\n\n")
    with halfbyte.load(path) as model:
        kl = divergence(expected, log_softmax(model.logits(ids[:-1])))
        losses = []
        for story in stories:
            tokens = [*model.tokenizer.encode(story), model.tokenizer.eos]
            losses.append(model.token_losses(tokens[: model.context + 1]))
        return {
            "type": preset, "bits_per_weight": bits_per_weight(model.file),
            "bytes": path.stat().st_size,
            "perplexity": float(np.exp(np.concatenate(losses).mean())), "kl": float(kl),
        }  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.quality", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_json_option(parser)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for preset in ("fp32", "fp16", "bf16", "int8", "int4"):
            path = Path(folder) / f"{preset}.gguf"
            if preset == "fp32":
                as_f32(MODEL, path)
            else:
                quantize_file(MODEL, preset, path)
            rows.append(measure(preset, path))
    print(tables.quality(rows))
    versions = {"llama.cpp": f"xllamacpp {version('xllamacpp')}"}
    write_json(options.json, pytest_json([], "benches/quality", rows=rows, versions=versions))


if __name__ == "__main__":
    main()
