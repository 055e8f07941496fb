"""Train the shipped storyteller from scratch: stories from a grammar, a tokenizer, a small Llama.

    python -m venv /tmp/train && /tmp/train/bin/pip install torch==2.13.0 numpy sentencepiece
    /tmp/train/bin/python tools/train_storyteller.py --minutes 40

Only this tool needs PyTorch and sentencepiece. After ten minutes and at the end, it writes the
model (llama2.c's .bin, version 0), its tokenizer and a summary of the log to
runtime/halfbyte/data/, and tests/data/storyteller-heldout.txt for the tests. A checkpoint is kept
in --work; --export writes the files from it without training. --stories N prints N stories of the
grammar, with Python only.
"""

from __future__ import annotations

import argparse
import itertools
import math
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storyteller_grammar import TRAINING_SEED, heldout_stories, stories
from training_cli import log_lines, parser, write

if TYPE_CHECKING:
    from storyteller_model import Llama

ROOT = Path(__file__).resolve().parents[1]
HELDOUT_STORIES = 40
BOS, EOS = 1, 2


# ---- tokenizer -----------------------------------------------------------------------------------


def train_tokenizer(work: Path) -> Any:
    """A SentencePiece BPE tokenizer with byte fallback; returns the processor."""
    import sentencepiece
    from storyteller_model import CONFIG

    model = work / "tokenizer.model"
    if not model.exists():
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=itertools.islice(stories(TRAINING_SEED), 20_000),
            model_prefix=str(work / "tokenizer"), model_type="bpe",
            vocab_size=CONFIG.vocabulary, byte_fallback=True, unk_id=0, bos_id=BOS, eos_id=EOS,
            normalization_rule_name="identity", remove_extra_whitespaces=False,
            character_coverage=1.0, hard_vocab_limit=True, minloglevel=1,
        )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_file=str(model))


def tokenizer_bytes(tokenizer: Any) -> bytes:
    """llama2.c's tokenizer file: longest piece, then score, length and bytes of each."""
    pieces = []
    for index in range(tokenizer.get_piece_size()):
        piece = tokenizer.id_to_piece(index)
        piece = {BOS: "\n<s>\n", EOS: "\n</s>\n"}.get(index, piece).replace("\u2581", " ")
        pieces.append((tokenizer.get_score(index), piece.encode()))
    longest = max(len(text) for _, text in pieces)
    parts = [struct.pack("<fi", score, len(text)) + text for score, text in pieces]
    return struct.pack("<i", longest) + b"".join(parts)


# ---- output --------------------------------------------------------------------------------------


def summary(model: Llama, tokenizer: Any, record: dict[str, Any]) -> str:
    """The text beside the model: how it was trained, and how good it is."""
    from storyteller_training import generate, heldout_loss

    loss, count = heldout_loss(model, tokenizer, heldout_stories(HELDOUT_STORIES))
    parameters = sum(p.numel() for p in model.parameters())
    return "\n".join([
        "storyteller: a Llama-type model that tells short stories, trained from scratch",
        "",
        f"parameters   {parameters:,} ({model.config})",
        "training     stories of tools/storyteller_grammar.py, PyTorch on two CPU threads",
        f"command      {record['command']}",
        f"finished     {record['date']}",
        f"held out     perplexity {math.exp(loss):.4f} per token: {loss:.5f} nats over "
        f"{count} tokens",
        f"             of the {HELDOUT_STORIES} stories in storyteller-heldout.txt, each after BOS "
        "and",
        "             with its EOS",
        "licence      MIT, as all of halfbyte",
        "",
        *log_lines(record),
        "",
        "Told at temperature 0.8 (PyTorch):",
        "",
        *(f"seed {seed}: {generate(model, tokenizer, seed)}" for seed in (1, 2, 3)),
        "",
    ])  # fmt: skip


def export(model: Llama, tokenizer: Any, record: dict[str, Any], out: Path | None) -> None:
    """Write model, tokenizer, summary and held-out stories into the repository, or to `out`."""
    from storyteller_model import model_bytes

    data = out or ROOT / "runtime/halfbyte/data"
    heldout = "\n\n".join(heldout_stories(HELDOUT_STORIES)) + "\n"
    write(data / "storyteller.bin", model_bytes(model))
    write(data / "storyteller-tokenizer.bin", tokenizer_bytes(tokenizer))
    write(data / "storyteller.txt", summary(model, tokenizer, record).encode())
    write((out or ROOT / "tests/data") / "storyteller-heldout.txt", heldout.encode())


# ---- a run ---------------------------------------------------------------------------------------


def parse() -> argparse.Namespace:
    """The command line."""
    options = parser(__doc__ or "", 40, 24, 4e-3, ROOT / "build/storyteller")
    options.add_argument("--stories", type=int, metavar="N", help="print N stories and stop")
    return options.parse_args()


def main() -> int:
    """Print stories, export a checkpoint, or train."""
    options = parse()
    if options.stories is not None:
        print("\n\n".join(itertools.islice(stories(0), options.stories)))
        return 0
    import torch
    from llama_training import adamw, load, reporter, train
    from storyteller_model import Llama
    from storyteller_training import batches, height

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    options.work.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(options.work)
    model = Llama()
    if options.export:
        record = load(options.work / "checkpoint.pt", model)
    else:
        numbers = f"--minutes {options.minutes:g} --batch {options.batch} --rate {options.rate:g}"
        command = f"python tools/train_storyteller.py {numbers} --seed {options.seed}"
        record = {"command": command, "log": []}
        optimizer = adamw(model)
        report = reporter(
            model, [optimizer], record, options,
            lambda: export(model, tokenizer, record, options.out),
        )  # fmt: skip
        rows = batches(tokenizer, options.batch, TRAINING_SEED)
        train(model, {optimizer: options.rate}, rows, options.minutes, height, report)
    export(model, tokenizer, record, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
