"""llama.cpp runs the same adapters in GGUF, and its distributions are ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.judges.test_llama_cpp import log_softmax
from tests.judges.test_llama_cpp_architectures import BOUND, log_probabilities
from tests.text import adapters
from tests.text.architectures import models

import halfbyte

MATRICES = {
    "blk.0.attn_q.weight": (32, 32), "blk.0.attn_k.weight": (16, 32),
    "blk.1.attn_v.weight": (16, 32), "blk.1.attn_output.weight": (32, 32),
    "blk.2.ffn_gate.weight": (64, 32), "blk.2.ffn_down.weight": (32, 64),
    "output.weight": (264, 32),
}  # fmt: skip


def test_distributions_agree(tmp_path: Path) -> None:
    path = models.write(tmp_path / "model.gguf", "llama")
    changes = adapters.changes_of(MATRICES, 4)
    adapter = adapters.write_gguf_adapter(tmp_path / "adapter.gguf", changes, alpha=6)
    ids, lengths = models.ids("llama"), list(range(1, models.CONTEXT, 9))
    theirs = log_probabilities(path, ids, lengths, adapters={adapter: 0.5})
    places = np.array(lengths) - 1
    with halfbyte.load(path, lora={adapter: 0.5}) as model:
        ours = log_softmax(model.logits(ids))[places]
        plain = log_softmax(model.adapter("adapter", 0).logits(ids))[places]
    assert np.abs(theirs - ours).max() < BOUND
    assert np.abs(theirs - plain).max() > 0.1
