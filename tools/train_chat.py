"""Train Crumb, the page's chat model, from scratch: conversations from a grammar, a small Llama.

    python -m venv /tmp/train
    /tmp/train/bin/pip install torch==2.13.0 sentencepiece safetensors \
        wonderwords==3.0.1 names==0.3.0 .
    /tmp/train/bin/python tools/train_chat.py --minutes 60

Only this tool needs PyTorch, sentencepiece, safetensors, and the word lists of wonderwords and
names, which are MIT-licensed; PyTorch's compiler needs a C++ compiler. After ten minutes and at the
end, it writes the model in int4 with tokenizer and chat template (crumb-int4.gguf) and a summary
of the log to models/, and tests/data/crumb-heldout.json for the tests. A checkpoint is kept in
--work, and the model in float32 as a Hugging Face folder; --resume goes on from the checkpoint,
and --export writes the files from it without training. --conversations N prints N conversations of
the grammar.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chat_grammar import TRAINING_SEED, conversations, heldout_conversations
from training_cli import log_lines, parser, write

if TYPE_CHECKING:
    from storyteller_model import Llama

ROOT = Path(__file__).resolve().parents[1]
MODEL = "crumb-int4.gguf"
HELDOUT = 40  # conversations
QUESTIONS = ["hi", "who are you?", "tell me a story about a snail named Tim", "shorter please"]


def summary(model: Llama, folder: Path, quantized: Path, record: dict[str, Any]) -> str:
    """The text beside the model: what it is, how it was trained, and how good it is."""
    from chat_files import heldout_loss, talk

    parameters = sum(p.numel() for p in model.parameters())
    heldout = heldout_conversations(HELDOUT)
    (float_loss, count), (int4_loss, _) = (
        heldout_loss(path, heldout) for path in (folder, quantized)
    )
    return "\n".join([
        "Crumb: a Llama-type model that chats about very little, trained from scratch",
        "",
        f"parameters   {parameters:,} ({model.config})",
        "training     conversations of tools/chat_grammar.py, PyTorch on CPU",
        f"command      {record['command']}",
        f"finished     {record['date']}",
        f"held out     perplexity {math.exp(float_loss):.4f} per token of an answer in float32,",
        f"             {math.exp(int4_loss):.4f} in int4: {count} tokens of the {HELDOUT} "
        "conversations in",
        "             tests/data/crumb-heldout.json",
        "words        nouns, adjectives and verbs of wonderwords (MIT), first names of names (MIT)",
        "licence      MIT, as all of halfbyte",
        "",
        *log_lines(record),
        "",
        "A conversation at temperature 0:",
        "",
        *(f"> {question}\n{answer}" for question, answer in talk(quantized, QUESTIONS)),
        "",
    ])  # fmt: skip


def export(model: Llama, options: argparse.Namespace, record: dict[str, Any]) -> None:
    """Write the model, its summary and held-out conversations into the repository, or to --out."""
    from chat_files import write_folder

    from halfbyte.quantize import quantize_file

    folder, out = options.work / "crumb", options.out or ROOT / "models"
    write_folder(model, options.work / "tokenizer.model", folder)
    out.mkdir(parents=True, exist_ok=True)
    quantize_file(folder, "int4", out / MODEL)
    text = summary(model, folder, out / MODEL, record)
    write(out / "crumb-int4.txt", text.encode())
    heldout = json.dumps(heldout_conversations(HELDOUT), indent=0) + "\n"
    write((options.out or ROOT / "tests/data") / "crumb-heldout.json", heldout.encode())


def parse() -> argparse.Namespace:
    """The command line."""
    options = parser(__doc__ or "", 60, 4, 0.02, ROOT / "build/crumb")
    options.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    options.add_argument("--conversations", type=int, metavar="N", help="print N and stop")
    return options.parse_args()


def main() -> int:
    """Print conversations, export a checkpoint, or train."""
    options = parse()
    if options.conversations is not None:
        for turns in itertools.islice(conversations(0), options.conversations):
            print(*(f"> {question}\n{answer}" for question, answer in turns), "", sep="\n")
        return 0
    import torch
    from chat_training import CONFIG, batches, forward, height, make_optimizers, train_tokenizer
    from llama_training import load, reporter, train
    from storyteller_model import Llama

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    options.work.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(options.work)
    model = Llama(CONFIG)
    optimizers = make_optimizers(model, options.rate)
    numbers = f"--minutes {options.minutes:g} --batch {options.batch} --rate {options.rate:g}"
    command = f"python tools/train_chat.py {numbers} --seed {options.seed}"
    record: dict[str, Any] = {"command": command, "log": []}
    if options.export or options.resume:
        record = load(options.work / "checkpoint.pt", model, list(optimizers))
    if options.resume:
        record["command"] += f", then --resume {numbers}"
    if not options.export:
        report = reporter(
            model, list(optimizers), record, options, lambda: export(model, options, record)
        )
        rows = batches(tokenizer, options.batch, TRAINING_SEED + 1000 * len(record["log"]))
        warm_up = 10 if options.resume else 100
        train(forward(model), optimizers, rows, options.minutes, height, report, warm_up)
    export(model, options, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
