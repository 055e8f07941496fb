"""Channels are scaled by random factors that leave the function of a model as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benches.trained import random_scales
from tests.quantize.test_rotation import logits
from tests.text.architectures import models

from halfbyte.text.opening import open_model


def test_scaled_channels_leave_the_function_and_no_lattice(tmp_path: Path) -> None:
    file, ids = open_model(models.write(tmp_path / "llama.gguf", "llama")), models.ids("llama")
    heads, kv = (file.metadata[f"llama.attention.head_count{x}"] for x in ("", "_kv"))
    assert heads != kv  # or no head of values is shared
    scaled = random_scales(file).of_file(file)
    assert models.largest_difference(logits(scaled, ids), logits(file, ids)) < 1e-5
    for part in ("attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        before, after = (f.tensors[f"blk.0.{part}.weight"].decode() for f in (file, scaled))
        assert len(np.unique((after / before).round(4)[0])) >= before.shape[1] / 2, part
