"""Compares tiny encoders with `transformers`, and writes the tests' goldens.

    make judge                  # or only this: python -m tests.judges.encoders

See `tests.judges.architectures`.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tests.text.architectures import models
from tests.text.encoders import encoders

import halfbyte

BOUND = 1e-4  # of the largest number


def reference(name: str) -> tuple[dict[str, list[int]], models.F32Array]:
    """Shapes of all tensors, and vectors or scores of the texts, by `transformers` in float32."""
    values = encoders.config(name)
    config = transformers.AutoConfig.for_model(**values)
    config._attn_implementation = "eager"
    model: Any = getattr(transformers, values["architectures"][0])(config).eval()
    shapes = {n: list(t.shape) for n, t in model.state_dict().items() if t.dtype == torch.float32}
    own = {n: torch.from_numpy(models.values(f"{name}/{n}", tuple(s))) for n, s in shapes.items()}
    if model.get_output_embeddings() is not None:
        own["lm_head.decoder.weight"] = own["roberta.embeddings.word_embeddings.weight"]
    model.load_state_dict(own, strict=False)
    rows = []
    for text in encoders.TEXTS:
        with torch.no_grad():
            if name in encoders.RANKS:
                ids, types = encoders.pair(name, text)
                given = {"token_type_ids": torch.tensor([types])} if name == "bert-rank" else {}
                rows.append(model(torch.tensor([ids]), **given).logits[0])
            else:
                body = getattr(model, "roberta", model)
                hidden = body(torch.tensor([encoders.ids(text)])).last_hidden_state[0]
                rows.append(hidden.mean(dim=0))
    return shapes, np.stack([np.asarray(row) for row in rows])


def main() -> int:
    """Print the table and write goldens; 1 if a difference is too large."""
    print(f"encoders: largest difference, relative to the largest number; transformers "
          f"{transformers.__version__}, torch {torch.__version__}")  # fmt: skip
    goldens = {}
    for name in encoders.CONFIGS:
        shapes, wanted = reference(name)
        encoded = base64.b64encode(wanted.astype(np.float32).tobytes()).decode()
        goldens[name] = {"tensors": shapes, "values": encoded}
    encoders.GOLDENS.write_text(json.dumps(goldens, indent=0) + "\n", encoding="utf-8")
    failed = False
    for name in encoders.CONFIGS:
        wanted = encoders.expected(name)
        with tempfile.TemporaryDirectory() as folder:
            path = encoders.write(Path(folder), name)
            with halfbyte.load_encoder(path) as model:
                rank = name in encoders.RANKS
                texts = encoders.TEXTS
                found = model.rerank(encoders.QUERY, texts) if rank else model.embed(texts)
        difference = models.largest_difference(found, wanted)
        failed |= not difference < BOUND
        print(f"  {name:<20}{difference:.1e}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
