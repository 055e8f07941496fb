"""Train the shipped storyteller from scratch: stories from a grammar, a tokenizer, a small Llama.

    python -m venv /tmp/train && /tmp/train/bin/pip install torch==2.13.0 numpy sentencepiece
    /tmp/train/bin/python tools/train_storyteller.py --minutes 40

PyTorch and sentencepiece are needed here alone. Written are, in runtime/halfbyte/data/, the model
(llama2.c's .bin, version 0), its tokenizer and a text with the log's summary, and for the tests
tests/data/storyteller-heldout.txt. A checkpoint lies in --work; --export writes the files from it
without training. --stories N prints N stories of the grammar.
"""

from __future__ import annotations

import argparse
import itertools
import math
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import storyteller_grammar

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "runtime/halfbyte/data"
HELDOUT = ROOT / "tests/data/storyteller-heldout.txt"
BOS, EOS = 1, 2
TRAIN_SEED, HELDOUT_SEED = 1, 2
HELDOUT_STORIES = 40


@dataclass(frozen=True)
class Config:
    """Sizes of the model: 992,640 parameters."""

    dim: int = 128
    hidden: int = 320
    layers: int = 5
    heads: int = 4
    kv_heads: int = 2
    vocabulary: int = 1024
    context: int = 256
    epsilon: float = 1e-5
    theta: float = 10000.0

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.dim // self.heads


CONFIG = Config()


def heldout_stories() -> list[str]:
    """Stories for tests: from another seed, none of them among 100,000 of the training's."""
    seen = set(itertools.islice(storyteller_grammar.stories(TRAIN_SEED), 100_000))
    fresh = (s for s in storyteller_grammar.stories(HELDOUT_SEED) if s not in seen)
    return list(itertools.islice(fresh, HELDOUT_STORIES))


# ---- tokenizer -----------------------------------------------------------------------------------


def train_tokenizer(work: Path) -> Any:
    """A SentencePiece BPE tokenizer with byte fallback; returns the processor."""
    import sentencepiece

    model = work / "tokenizer.model"
    if not model.exists():
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=itertools.islice(storyteller_grammar.stories(TRAIN_SEED), 20_000),
            model_prefix=str(work / "tokenizer"), model_type="bpe",
            vocab_size=CONFIG.vocabulary, byte_fallback=True, unk_id=0, bos_id=BOS, eos_id=EOS,
            normalization_rule_name="identity", remove_extra_whitespaces=False,
            character_coverage=1.0, hard_vocab_limit=True, minloglevel=1,
        )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_file=str(model))


def tokenizer_bytes(words: Any) -> bytes:
    """llama2.c's tokenizer file: longest piece, then score, length and bytes of each."""
    pieces = []
    for index in range(words.get_piece_size()):
        piece = words.id_to_piece(index)
        piece = {BOS: "\n<s>\n", EOS: "\n</s>\n"}.get(index, piece).replace("\u2581", " ")
        pieces.append((words.get_score(index), piece.encode()))
    longest = max(len(text) for _, text in pieces)
    parts = [struct.pack("<fi", score, len(text)) + text for score, text in pieces]
    return struct.pack("<i", longest) + b"".join(parts)


# ---- model ---------------------------------------------------------------------------------------


def make_model(torch: Any) -> Any:
    """The Llama architecture in PyTorch: RMSNorm, RoPE on pairs, GQA, SwiGLU, a tied head."""
    nn, functional, c = torch.nn, torch.nn.functional, CONFIG

    def linear(rows: int, columns: int, scale: float = 1.0) -> Any:
        layer = nn.Linear(columns, rows, bias=False)
        nn.init.normal_(layer.weight, std=0.02 * scale)
        return layer

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            kv, depth = c.kv_heads * c.head_dim, (2 * c.layers) ** -0.5
            self.attention_norm = nn.RMSNorm(c.dim, eps=c.epsilon)
            self.q, self.k, self.v = linear(c.dim, c.dim), linear(kv, c.dim), linear(kv, c.dim)
            self.o = linear(c.dim, c.dim, depth)
            self.ffn_norm = nn.RMSNorm(c.dim, eps=c.epsilon)
            self.gate, self.up = linear(c.hidden, c.dim), linear(c.hidden, c.dim)
            self.down = linear(c.dim, c.hidden, depth)

        def turn(self, x: Any, cos: Any, sin: Any) -> Any:
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            n, length, _ = x.shape
            h = self.attention_norm(x)
            q, k, v = (
                layer(h).view(n, length, -1, c.head_dim).transpose(1, 2)
                for layer in (self.q, self.k, self.v)
            )
            y = functional.scaled_dot_product_attention(
                self.turn(q, cos, sin), self.turn(k, cos, sin), v, is_causal=True, enable_gqa=True
            )
            x = x + self.o(y.transpose(1, 2).reshape(n, length, c.dim))
            h = self.ffn_norm(x)
            return x + self.down(functional.silu(self.gate(h)) * self.up(h))

    class Llama(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(c.vocabulary, c.dim)
            nn.init.normal_(self.embedding.weight, std=0.02)
            self.blocks = nn.ModuleList(Block() for _ in range(c.layers))
            self.norm = nn.RMSNorm(c.dim, eps=c.epsilon)
            self.cos, self.sin = rotary(torch)

        def forward(self, ids: Any) -> Any:
            x = self.embedding(ids)
            cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
            for block in self.blocks:
                x = block(x, cos, sin)
            return functional.linear(self.norm(x), self.embedding.weight)

    return Llama()


def rotary(torch: Any) -> tuple[Any, Any]:
    """cos and sin [context, head_dim / 2] of position * theta^(-2j / head_dim)."""
    pairs = CONFIG.head_dim // 2
    frequency = CONFIG.theta ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    angle = torch.arange(CONFIG.context, dtype=torch.float64)[:, None] * frequency
    return angle.cos().float(), angle.sin().float()


def model_bytes(torch: Any, model: Any) -> bytes:
    """llama2.c's version 0: header, float32 tensors grouped by kind, rotary tables."""
    c = CONFIG
    header = struct.pack(
        "<7i", c.dim, c.hidden, c.layers, c.heads, c.kv_heads, c.vocabulary, c.context
    )
    tensors = [model.embedding.weight]
    for name in ("attention_norm", "q", "k", "v", "o", "ffn_norm", "gate", "down", "up"):
        tensors += [getattr(block, name).weight for block in model.blocks]
    tensors += [model.norm.weight, *rotary(torch)]
    return header + b"".join(t.detach().numpy().astype("<f4").tobytes() for t in tensors)


# ---- training ------------------------------------------------------------------------------------


def batches(torch: Any, words: Any, size: int, seed: int) -> Iterator[Any]:
    """Token ids [size, context + 1]: stories end to end, each row beginning with a story."""
    source = storyteller_grammar.stories(seed)
    length = CONFIG.context + 1
    while True:
        rows = []
        for _ in range(size):
            row: list[int] = []
            while len(row) < length:
                row += [BOS, *words.encode(next(source)), EOS]
            rows.append(row[:length])
        yield torch.tensor(rows)


def heldout_loss(torch: Any, model: Any, words: Any) -> tuple[float, int]:
    """Mean -log p (nats) per token of each held-out story after BOS, EOS included; how many."""
    total, count = 0.0, 0
    with torch.no_grad():
        for story in heldout_stories():
            ids = torch.tensor([[BOS, *words.encode(story), EOS]])[:, : CONFIG.context + 1]
            logits = model(ids[:, :-1])[0]
            total += float(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum"))
            count += ids.shape[1] - 1
    return total / count, count


def train(torch: Any, words: Any, options: argparse.Namespace, log: list[str]) -> Any:
    """Train for --minutes; the learning rate follows the clock. Returns the model."""
    torch.manual_seed(options.seed)
    model = make_model(torch)
    decay = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95))
    start = saved = shown = time.monotonic()
    tokens, losses = 0, []
    for step, rows in enumerate(batches(torch, words, options.batch, TRAIN_SEED), 1):
        share = (time.monotonic() - start) / (60 * options.minutes)
        rate = options.rate * min(step / 100, 0.5 * (1 + math.cos(math.pi * min(share, 1))))
        for group in optimizer.param_groups:
            group["lr"] = rate
        logits = model(rows[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        tokens += rows.numel()
        losses.append(loss.item())
        now = time.monotonic()
        if now - shown > 60 or share >= 1:
            shown, mean = now, sum(losses) / len(losses)
            losses = []
            log.append(
                f"{(now - start) / 60:5.1f} min  step {step:5d}  {tokens / 1e6:6.2f} M tokens  "
                f"loss {mean:.4f}  {tokens / (now - start):6.0f} tokens/s"
            )
            print(log[-1], flush=True)
        if now - saved > 180 or share >= 1:
            saved = now
            torch.save({"model": model.state_dict(), "log": log}, options.work / "checkpoint.pt")
        if share >= 1:
            return model
    raise AssertionError("batches never end")


def tell(torch: Any, model: Any, words: Any, seed: int, temperature: float = 0.8) -> str:
    """A story sampled from the model."""
    generator = torch.Generator().manual_seed(seed)
    ids = [BOS]
    with torch.no_grad():
        while len(ids) < CONFIG.context:
            logits = model(torch.tensor([ids]))[0, -1] / temperature
            ids.append(int(torch.multinomial(logits.softmax(0), 1, generator=generator)))
            if ids[-1] in (BOS, EOS):
                break
    return str(words.decode(ids))


# ---- output --------------------------------------------------------------------------------------


def write(path: Path, data: bytes) -> None:
    """Write to a temporary file, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(data)
    partial.replace(path)
    print(f"wrote {path} ({len(data):,} bytes)")


def summary(torch: Any, model: Any, words: Any, log: list[str], command: str) -> str:
    """What lies beside the model: how it was made, and how good it is."""
    loss, count = heldout_loss(torch, model, words)
    parameters = sum(p.numel() for p in model.parameters())
    every = max(1, len(log) // 12)
    picked = [*log[:-1:every], log[-1]] if log else []
    quality = f"perplexity {math.exp(loss):.4f} per token: {loss:.5f} nats over {count} tokens"
    told = [f"seed {seed}: {tell(torch, model, words, seed)}" for seed in (1, 2, 3)]
    return "\n".join([
        "storyteller: a Llama-type model that tells short stories, trained from scratch",
        "",
        f"parameters   {parameters:,} ({CONFIG})",
        "training     stories of tools/storyteller_grammar.py, PyTorch on two CPU threads",
        f"command      {command}",
        f"held out     {quality}",
        f"             of the {HELDOUT_STORIES} stories in {HELDOUT.name}, each after BOS and",
        "             with its EOS",
        "licence      MIT, as all of halfbyte",
        "",
        "Training log (loss is the mean since the line before):",
        "",
        *picked,
        "",
        "Told at temperature 0.8 (PyTorch):",
        "",
        *told,
        "",
    ])  # fmt: skip


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=40, help="time to train (default 40)")
    parser.add_argument("--batch", type=int, default=24, help="rows of 256 tokens (default 24)")
    parser.add_argument("--rate", type=float, default=4e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("build/storyteller"), help="checkpoint")
    parser.add_argument("--export", action="store_true", help="write files from the checkpoint")
    parser.add_argument("--stories", type=int, metavar="N", help="print N stories and stop")
    options = parser.parse_args()
    if options.stories:
        print("\n\n".join(itertools.islice(storyteller_grammar.stories(0), options.stories)))
        return 0
    import torch

    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    words = train_tokenizer(options.work)
    log: list[str] = []
    if options.export:
        checkpoint = torch.load(options.work / "checkpoint.pt", weights_only=True)
        model = make_model(torch)
        model.load_state_dict(checkpoint["model"])
        log = checkpoint["log"]
    else:
        model = train(torch, words, options, log)
    command = (
        f"python tools/train_storyteller.py --minutes {options.minutes:g} --seed {options.seed}"
    )
    write(DATA / "storyteller.bin", model_bytes(torch, model))
    write(DATA / "storyteller-tokenizer.bin", tokenizer_bytes(words))
    write(DATA / "storyteller.txt", summary(torch, model, words, log, command).encode())
    write(HELDOUT, "\n\n".join([*heldout_stories()]).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
