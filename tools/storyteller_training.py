"""Training the storyteller, measuring its loss, and generating stories; needs PyTorch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from storyteller_grammar import TRAINING_SEED, stories
from storyteller_model import CONFIG, Llama
from torch import Tensor
from torch.nn import functional

BOS, EOS = 1, 2
_WARM_UP = 100  # steps


def batches(tokenizer: Any, size: int, seed: int) -> Iterator[Tensor]:
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
        yield torch.tensor(rows)


def make_optimizer(model: Llama) -> torch.optim.Optimizer:
    """AdamW with weight decay for matrices, but not for norms."""
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95))


def descend(model: Llama, optimizer: torch.optim.Optimizer, rows: Tensor, rate: float) -> float:
    """One step on token ids [rows, context + 1]; returns the loss before it."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    logits = model(rows[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def train(
    model: Llama,
    tokenizer: Any,
    minutes: float,
    batch: int,
    rate: float,
    report: Callable[[str, bool], None],
) -> None:
    """Train for a time; the learning rate falls with the clock, as half a cosine.

    `report` is called each minute with a line of the log, and whether it is the last.
    """
    optimizer = make_optimizer(model)
    start = shown = time.monotonic()
    tokens, losses = 0, []
    for step, rows in enumerate(batches(tokenizer, batch, TRAINING_SEED), 1):
        share = min((time.monotonic() - start) / (60 * minutes), 1)
        height = min(step / _WARM_UP, 0.5 * (1 + math.cos(math.pi * share)))
        losses.append(descend(model, optimizer, rows, rate * height))
        tokens += rows.numel()
        now = time.monotonic()
        if now - shown > 60 or share >= 1:
            passed = now - start
            report(
                f"{passed / 60:5.1f} min  step {step:5d}  {tokens / 1e6:6.2f} M tokens  "
                f"loss {sum(losses) / len(losses):.4f}  {tokens / passed:6.0f} tokens/s",
                share >= 1,
            )
            shown, losses = now, []
        if share >= 1:
            return


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
