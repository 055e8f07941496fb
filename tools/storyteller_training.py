"""The storyteller's rows of tokens, its loss, and stories that it tells; needs PyTorch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from llama_training import Batch
from storyteller_grammar import stories
from storyteller_model import CONFIG, Llama
from torch.nn import functional

BOS, EOS = 1, 2


def batches(tokenizer: Any, size: int, seed: int) -> Iterator[Batch]:
    """Token ids [size, context + 1]: stories end to end, each row beginning with a story."""
    source = stories(seed)
    length = CONFIG.context + 1
    while True:
        rows = []
        for _ in range(size):
            row: list[int] = []
            while len(row) < length:
                row += [BOS, *tokenizer.encode(next(source)), EOS]
            rows.append(row[:length])
        yield torch.tensor(rows), None


def height(share: float) -> float:
    """Of the learning rate: it falls with the time as half a cosine."""
    return 0.5 * (1 + math.cos(math.pi * share))


def heldout_loss(model: Llama, tokenizer: Any, texts: Sequence[str]) -> tuple[float, int]:
    """Mean -log p (nats) per token of each story after BOS, EOS included; and how many tokens."""
    total, count = 0.0, 0
    with torch.no_grad():
        for text in texts:
            ids = torch.tensor([[BOS, *tokenizer.encode(text), EOS]])[:, : CONFIG.context + 1]
            logits = model(ids[:, :-1])[0]
            total += float(functional.cross_entropy(logits, ids[0, 1:], reduction="sum"))
            count += ids.shape[1] - 1
    return total / count, count


def generate(model: Llama, tokenizer: Any, seed: int, temperature: float = 0.8) -> str:
    """A story sampled from the model."""
    generator = torch.Generator().manual_seed(seed)
    ids = [BOS]
    with torch.no_grad():
        while len(ids) < CONFIG.context:
            logits = model(torch.tensor([ids]))[0, -1] / temperature
            ids.append(int(torch.multinomial(logits.softmax(0), 1, generator=generator)))
            if ids[-1] in (BOS, EOS):
                break
    return str(tokenizer.decode(ids))
