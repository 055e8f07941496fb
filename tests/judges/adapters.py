"""Compares adapters with `peft` on tiny models, and writes the tests' goldens.

make judge                  # all, or some: python -m tests.judges.adapters llama gpt2
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import peft
import torch
import transformers
from tests.judges.architectures import BOUND, built
from tests.text import adapters
from tests.text.architectures import models

import halfbyte


def reference(name: str, folder: Path) -> models.F32Array:
    """Logits [tokens, vocabulary] by `peft`, in float32."""
    model = peft.PeftModel.from_pretrained(built(name), folder).eval()
    with torch.no_grad():
        return np.asarray(model(torch.tensor([models.ids(name)])).logits[0])


def main() -> int:
    """Print the table and write goldens; 1 if a difference is too large."""
    print(f"largest difference of logits, relative to the largest; peft {peft.__version__}, "
          f"transformers {transformers.__version__}, torch {torch.__version__}")  # fmt: skip
    failed = False
    for name in sys.argv[1:] or adapters.CONFIGS:
        differences = {}
        with tempfile.TemporaryDirectory() as temporary:
            folder = adapters.write_peft(Path(temporary) / "adapter", name)
            expected = reference(name, folder)
            path = models.write(Path(temporary) / f"{name}.gguf", name)
            for backend in ("numpy", "native"):
                with halfbyte.load(path, backend=backend, lora={folder: 1.0}) as model:
                    logits = model.logits(models.ids(name))
                differences[backend] = models.largest_difference(logits, expected)
        worst = max(differences.values())
        failed |= not worst < BOUND
        print(f"  {name:<20}" + "".join(f"{b:>8} {d:.1e}" for b, d in differences.items()))
        if worst < BOUND:
            models.write_golden(f"lora-{name}", {}, expected)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
