"""Training a small Llama-type model by the clock, and its checkpoints; needs PyTorch."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from storyteller_model import Llama
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer

_FIRST_EXPORT, _CHECKPOINT = 10, 3  # minutes: the first export, and between checkpoints

Batch = tuple[Tensor, Tensor | None]
"""Token ids [rows, length + 1], and the weight [rows, length] of each prediction, or None."""


def adamw(model: Llama) -> Optimizer:
    """AdamW with weight decay for matrices, but not for norms."""
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95))


def descend(
    model: Callable[[Tensor], Tensor], optimizers: Sequence[Optimizer], batch: Batch
) -> float:
    """One step; returns the loss before it."""
    rows, weights = batch
    targets = rows[:, 1:].flatten()
    logits = model(rows[:, :-1]).float().flatten(0, 1)
    if weights is None:
        loss = functional.cross_entropy(logits, targets)
    else:
        losses = functional.cross_entropy(logits, targets, reduction="none")
        loss = (losses * weights.flatten()).sum() / weights.sum()
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    parameters = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return loss.item()


def train(
    model: Callable[[Tensor], Tensor],
    optimizers: dict[Optimizer, float],
    batches: Iterator[Batch],
    minutes: float,
    height: Callable[[float], float],
    report: Callable[[str, bool], None],
    warm_up: int = 100,
) -> None:
    """Train for a time.

    Each optimizer has its highest learning rate, which is multiplied by `height` of the share of
    the time that has passed, and rises to it in the first `warm_up` steps. `report` is called each
    minute with a line of the log, and whether it is the last.
    """
    start = shown = time.monotonic()
    tokens, losses = 0, []
    for step, batch in enumerate(batches, 1):
        share = min((time.monotonic() - start) / (60 * minutes), 1)
        for optimizer, rate in optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = rate * min(step / warm_up, height(share))
        losses.append(descend(model, list(optimizers), batch))
        tokens += batch[0].numel()
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


def load(path: Path, model: Llama, optimizers: Sequence[Optimizer] = ()) -> dict[str, Any]:
    """Read a checkpoint into a model and its optimizers; returns what `reporter` recorded."""
    record: dict[str, Any] = torch.load(path, weights_only=True)
    model.load_state_dict(record.pop("model"))
    for optimizer, state in zip(optimizers, record.pop("optimizers"), strict=False):
        optimizer.load_state_dict(state)
    return record


def reporter(
    model: Llama,
    optimizers: Sequence[Optimizer],
    record: dict[str, Any],
    options: argparse.Namespace,
    export: Callable[[], None],
) -> Callable[[str, bool], None]:
    """The function for lines of the log: it prints, saves checkpoints, and exports once.

    `options` has `minutes`, and the folder `work`, to which checkpoint.pt is written; `record` gets
    the log and the date.
    """
    start = saved = time.monotonic()
    exported = False

    def report(line: str, last: bool) -> None:
        nonlocal saved, exported
        now = time.monotonic()
        record["log"].append(line)
        record["date"] = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        left = max(0.0, options.minutes - (now - start) / 60)
        print(f"{line}  {left:.0f} min left", flush=True)
        if last or now - saved > 60 * _CHECKPOINT:
            saved = now
            partial = options.work / "checkpoint.pt.partial"
            states = [optimizer.state_dict() for optimizer in optimizers]
            torch.save({"model": model.state_dict(), "optimizers": states, **record}, partial)
            partial.replace(options.work / "checkpoint.pt")
        if not (last or exported) and now - start > 60 * _FIRST_EXPORT:
            exported = True
            export()

    return report
