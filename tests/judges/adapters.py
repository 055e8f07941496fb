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
from tests.judges.architectures import built, judged
from tests.text import adapters
from tests.text.architectures import models


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
        with tempfile.TemporaryDirectory() as temporary:
            folder = adapters.write_peft(Path(temporary) / "adapter", name)
            expected = reference(name, folder)
            path = models.write(Path(temporary) / f"{name}.gguf", name)
            agrees = judged(name, path, expected, lora={folder: 1.0})
        failed |= not agrees
        if agrees:
            models.write_golden(f"lora-{name}", {}, expected)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
