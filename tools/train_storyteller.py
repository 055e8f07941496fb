"""Train the shipped storyteller from scratch: stories from a grammar, a tokenizer, a small Llama.

    python -m venv /tmp/train && /tmp/train/bin/pip install torch==2.13.0 numpy sentencepiece
    /tmp/train/bin/python tools/train_storyteller.py --minutes 40

PyTorch and sentencepiece are needed here alone. Written are, in runtime/halfbyte/data/, the model
(llama2.c's .bin, version 0), its tokenizer and a text with the log's summary, and for the tests
tests/data/storyteller-heldout.txt: a first time after ten minutes, then at the end. A checkpoint
lies in --work; --export writes the files from it without training. --stories N prints N stories of
the grammar (this needs Python alone).
"""

from __future__ import annotations

import argparse
import itertools
import math
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storyteller_grammar import TRAINING_SEED, heldout_stories, stories

if TYPE_CHECKING:
    from storyteller_model import Llama

ROOT = Path(__file__).resolve().parents[1]
HELDOUT_STORIES = 40
BOS, EOS = 1, 2
FIRST_EXPORT, CHECKPOINT = 10, 3  # minutes: the first export, and between checkpoints


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


# ---- output --------------------------------------------------------------------------------------


def write(path: Path, data: bytes) -> None:
    """Write to a temporary file, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(data)
    partial.replace(path)
    print(f"wrote {path} ({len(data):,} bytes)", flush=True)


def summary(model: Llama, words: Any, made: dict[str, Any]) -> str:
    """What lies beside the model: how it was made, and how good it is."""
    from storyteller_training import heldout_loss, tell

    loss, count = heldout_loss(model, words, heldout_stories(HELDOUT_STORIES))
    parameters = sum(p.numel() for p in model.parameters())
    log: list[str] = made["log"]
    every = max(1, len(log) // 12)
    return "\n".join([
        "storyteller: a Llama-type model that tells short stories, trained from scratch",
        "",
        f"parameters   {parameters:,} ({model.config})",
        "training     stories of tools/storyteller_grammar.py, PyTorch on two CPU threads",
        f"command      {made['command']}",
        f"finished     {made['date']}",
        f"held out     perplexity {math.exp(loss):.4f} per token: {loss:.5f} nats over "
        f"{count} tokens",
        f"             of the {HELDOUT_STORIES} stories in storyteller-heldout.txt, each after BOS "
        "and",
        "             with its EOS",
        "licence      MIT, as all of halfbyte",
        "",
        "Training log (loss is the mean since the line before):",
        "",
        *log[:-1:every],
        *log[-1:],
        "",
        "Told at temperature 0.8 (PyTorch):",
        "",
        *(f"seed {seed}: {tell(model, words, seed)}" for seed in (1, 2, 3)),
        "",
    ])  # fmt: skip


def export(model: Llama, words: Any, made: dict[str, Any], out: Path | None) -> None:
    """Write model, tokenizer, summary and held-out stories where they belong, or all to `out`."""
    from storyteller_model import model_bytes

    data = out or ROOT / "runtime/halfbyte/data"
    heldout = "\n\n".join(heldout_stories(HELDOUT_STORIES)) + "\n"
    write(data / "storyteller.bin", model_bytes(model))
    write(data / "storyteller-tokenizer.bin", tokenizer_bytes(words))
    write(data / "storyteller.txt", summary(model, words, made).encode())
    write((out or ROOT / "tests/data") / "storyteller-heldout.txt", heldout.encode())


# ---- a run ---------------------------------------------------------------------------------------


def reporter(
    model: Llama, words: Any, made: dict[str, Any], options: argparse.Namespace
) -> Callable[[str, bool], None]:
    """What follows each line of the log: progress, now and then a checkpoint, once an export."""
    import torch

    start = saved = time.monotonic()
    exported = False

    def report(line: str, last: bool) -> None:
        nonlocal saved, exported
        now = time.monotonic()
        made["log"].append(line)
        made["date"] = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        left = max(0.0, options.minutes - (now - start) / 60)
        print(f"{line}  {left:.0f} min left", flush=True)
        if last or now - saved > 60 * CHECKPOINT:
            saved = now
            partial = options.work / "checkpoint.pt.partial"
            torch.save({"model": model.state_dict(), **made}, partial)
            partial.replace(options.work / "checkpoint.pt")
        if not (last or exported) and now - start > 60 * FIRST_EXPORT:
            exported = True
            export(model, words, made, options.out)

    return report


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=40, help="time to train (default 40)")
    parser.add_argument("--batch", type=int, default=24, help="rows of 256 tokens (default 24)")
    parser.add_argument("--rate", type=float, default=4e-3, help="highest learning rate (4e-3)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights at the start")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch (default 2)")
    parser.add_argument("--work", type=Path, default=ROOT / "build/storyteller", help="checkpoint")
    parser.add_argument("--out", type=Path, help="write all files here, not into the repository")
    parser.add_argument("--export", action="store_true", help="write files from the checkpoint")
    parser.add_argument("--stories", type=int, metavar="N", help="print N stories and stop")
    return parser.parse_args()


def main() -> int:
    """Print stories, export a checkpoint, or train."""
    options = parse()
    if options.stories is not None:
        print("\n\n".join(itertools.islice(stories(0), options.stories)))
        return 0
    import torch
    from storyteller_model import Llama
    from storyteller_training import train

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    options.work.mkdir(parents=True, exist_ok=True)
    words = train_tokenizer(options.work)
    model = Llama()
    if options.export:
        made = torch.load(options.work / "checkpoint.pt", weights_only=True)
        model.load_state_dict(made.pop("model"))
    else:
        numbers = f"--minutes {options.minutes:g} --batch {options.batch} --rate {options.rate:g}"
        command = f"python tools/train_storyteller.py {numbers} --seed {options.seed}"
        made = {"command": command, "log": []}
        report = reporter(model, words, made, options)
        train(model, words, options.minutes, options.batch, options.rate, report)
    export(model, words, made, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
