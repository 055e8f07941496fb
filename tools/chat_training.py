"""Crumb's tokenizer, its rows of tokens and its training; needs PyTorch and sentencepiece."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from chat_files import ASSISTANT, BOS, END, TOKENS, USER
from chat_grammar import TRAINING_SEED, Conversation, conversations
from llama_training import Batch
from storyteller_model import Config, Llama
from torch import Tensor
from torch.optim import Optimizer

CONFIG = Config(dim=256, hidden=768, layers=6, heads=8, kv_heads=4, vocabulary=2048, context=512)
_QUESTIONS = 0.1  # weight of predicting a question; an answer has 1


def train_tokenizer(work: Path) -> Any:
    """A SentencePiece BPE tokenizer with byte fallback; returns the processor."""
    import sentencepiece

    model = work / "tokenizer.model"
    if not model.exists():
        some = itertools.islice(conversations(TRAINING_SEED), 12_000)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(text for turns in some for turn in turns for text in turn),
            model_prefix=str(work / "tokenizer"), model_type="bpe", vocab_size=CONFIG.vocabulary,
            byte_fallback=True, unk_id=0, bos_id=BOS, eos_id=2, split_digits=True,
            control_symbols=list(TOKENS.values()), normalization_rule_name="identity",
            remove_extra_whitespaces=False, add_dummy_prefix=False, character_coverage=1.0,
            minloglevel=1,
        )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_file=str(model))


def encoded(tokenizer: Any, turns: Conversation) -> tuple[list[int], list[float]]:
    """Token ids of a conversation, as the template writes it, and the weight of each."""
    ids, weights = [BOS], [0.0]
    for question, answer in turns:
        asked = [USER, *tokenizer.encode(question), END, ASSISTANT]
        answered = [*tokenizer.encode(answer), END]
        ids += asked + answered
        weights += [_QUESTIONS] * len(asked) + [1.0] * len(answered)
    return ids, weights


def batches(tokenizer: Any, size: int, seed: int) -> Iterator[Batch]:
    """Conversations end to end, each row beginning with one."""
    source = conversations(seed)
    length = CONFIG.context + 1
    while True:
        rows: list[list[int]] = []
        weights: list[list[float]] = []
        for _ in range(size):
            row: list[int] = []
            weight: list[float] = []
            while len(row) < length:
                ids, of_ids = encoded(tokenizer, next(source))
                row += ids
                weight += of_ids
            rows.append(row[:length])
            weights.append(weight[1:length])
        yield torch.tensor(rows), torch.tensor(weights)


def make_optimizers(model: Llama, rate: float) -> dict[Optimizer, float]:
    """Muon for the matrices of the blocks, AdamW for the rest, with their learning rates."""
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    muon = torch.optim.Muon(matrices, lr=0.0, momentum=0.95, weight_decay=0.02)
    adam = torch.optim.AdamW(rest, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0)
    return {muon: rate, adam: rate / 5}


def height(share: float) -> float:
    """Of the learning rate: constant, then down to 0 in the last two fifths of the time."""
    return min(1.0, (1 - share) / 0.4)


def forward(model: Llama) -> Callable[[Tensor], Tensor]:
    """The compiled model, whose products are in bfloat16."""
    compiled = torch.compile(model)

    def call(rows: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return compiled(rows)

    return call
