"""What a language model loses when it is quantized, at equal bytes, judged by llama.cpp.

    python -m benches.rounding MODEL --text TEXT --heldout TEXT [--types Q4_0,Q4_K_M] [--json FILE]

Files are halfbyte's, by each method, and those of llama.cpp's quantizer, without and with
importance (which halfbyte computes on TEXT, as llama-imatrix does). llama.cpp computes the logits
of all of them, and of the model in F32, on the held-out texts, which are separated by empty lines.
The table has the mean KL divergence from the distributions in F32, the perplexity, and how often
the likeliest token is the same.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from benches.figures import add_json_option, pytest_json, write_json
from benches.prepare import VERSIONS, python_of
from tests.judges.test_llama_cpp import as_f32, divergence, log_softmax

from halfbyte.quantize import quantize_file
from halfbyte.quantize.calibration.imatrix import read_imatrix
from halfbyte.quantize.presets import canonical, presets
from halfbyte.text.opening import open_model
from halfbyte.text.tokenizers import from_metadata

WORKER = Path(__file__).with_name("peers") / "rounding_worker.py"
PEERS = {"llama.cpp": False, "llama.cpp, importance": True}
METHODS = "rtn", "search", "search, text", "gptq", "gptq, text", "tuned", "tuned, text"
WAYS = [*(f"halfbyte {method}" for method in METHODS), *PEERS]
TYPES = "Q4_0,Q4_K_M,Q3_K_M,IQ4_XS"
F64 = npt.NDArray[np.float64]


class Judge(NamedTuple):
    """Texts, and what the model in F32 says about them."""

    texts: list[list[int]]
    expected: F64

    def judged(self, logits: F64) -> dict[str, float]:
        """KL divergence, perplexity and agreement of logits."""
        ends = np.cumsum([len(text) for text in self.texts])
        next_ids = np.concatenate([[*text[1:], -1] for text in self.texts])
        scored = np.ones(len(logits), bool)
        scored[ends - 1] = False
        chosen = logits[np.flatnonzero(scored), next_ids[scored]]
        same = logits.argmax(axis=1) == self.expected.argmax(axis=1)
        return {
            "kl": divergence(self.expected, logits), "perplexity": float(np.exp(-chosen.mean())),
            "agreement": float(same.mean()),
        }  # fmt: skip


def texts_of(model: Path, heldout: Path) -> list[list[int]]:
    """The held-out texts as token ids, each from its beginning to its end."""
    tokenizer = from_metadata(open_model(model))
    documents = heldout.read_text(encoding="utf-8").strip().split("\n\n")
    before = [] if tokenizer.before else [tokenizer.bos]
    return [
        [*before, *tokenizer.encode(text, parse_special=True), tokenizer.eos][:256]
        for text in documents
    ]


def logits_of(model: Path, texts: list[list[int]], quantize: list[list[Any]]) -> F64:
    """Log-probabilities after every token, by llama.cpp, which may write the file first."""
    outputs = Path(f"{model}.npy")
    job = {"quantize": quantize, "logits": [[str(model), str(outputs)]], "texts": texts}
    command = [python_of("llama.cpp"), WORKER]
    worker = subprocess.run(
        command, input=json.dumps(job), text=True, capture_output=True, check=False
    )
    if worker.returncode:
        sys.exit(f"llama.cpp: exit code {worker.returncode}: {worker.stderr[-2000:]}")
    logits: F64 = log_softmax(np.load(outputs))
    outputs.unlink()
    return logits


def measure(
    model: Path, text: Path, heldout: Path, kinds: list[str], ways: list[str]
) -> Iterator[dict[str, Any]]:
    """A row for each file, which is removed then."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        floats, importance = folder / "f32.gguf", folder / "importance.npz"
        as_f32(model, floats)
        quantize_file(
            floats, "int8", folder / "int8.gguf", method="search", calibrate=text,
            write_imatrix=folder / "imatrix.gguf",
        )  # fmt: skip
        np.savez(importance, **read_imatrix(folder / "imatrix.gguf", open_model(floats)))  # type: ignore[arg-type]
        texts = texts_of(floats, heldout)
        expected = logits_of(floats, texts, [])
        judge = Judge(texts, expected)
        yield {
            "type": "F32", "by": "llama.cpp", "bytes": floats.stat().st_size,
            **judge.judged(expected),
        }  # fmt: skip
        target = folder / "quantized.gguf"
        for kind, way in itertools.product(kinds, ways):
            start, quantize = time.perf_counter(), []
            if way in PEERS:
                number = presets()[kind].file_type
                quantize = [[*map(str, (floats, target)), number, str(importance) * PEERS[way]]]
            else:
                method, _, data = way.removeprefix("halfbyte ").partition(", ")
                calibrate = {"calibrate": text} if data else {}
                quantize_file(floats, kind, target, method=method, **calibrate)
            seconds = time.perf_counter() - start
            judged = judge.judged(logits_of(target, texts, quantize))
            row = {"type": kind, "by": way, "bytes": target.stat().st_size, **judged}
            yield row if way in PEERS else {**row, "seconds": seconds}
            target.unlink()


def table(rows: list[dict[str, Any]]) -> str:
    """The rows for people; KL also as a share of that of llama.cpp with importance."""
    peers = {r["type"]: r["kl"] for r in rows if r["by"] == "llama.cpp, importance"}
    lines = ["| type | by | bytes | KL | of the peer's | perplexity | same token |",
             "|---|---|--:|--:|--:|--:|--:|"]  # fmt: skip
    for row in rows:
        share = f"{row['kl'] / peers[row['type']]:.0%}" if row["type"] in peers else ""
        lines.append(
            f"| {row['type']} | {row['by']} | {row['bytes']:,} | {row['kl']:.6f} | {share} | "
            f"{row['perplexity']:.4f} | {row['agreement']:.2%} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.rounding", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("model", type=Path, help="in floats")
    parser.add_argument("--text", type=Path, required=True, help="to calibrate with")
    parser.add_argument("--heldout", type=Path, required=True, help="to judge by")
    parser.add_argument("--types", default=TYPES, help=f"default: {TYPES}")
    parser.add_argument("--without", default="", help="such as tuned, which takes minutes")
    add_json_option(parser)
    options = parser.parse_args()
    kinds = [canonical(kind) for kind in options.types.split(",")]
    ways = [way for way in WAYS if not options.without or options.without not in way]
    rows = []
    for row in measure(options.model, options.text, options.heldout, kinds, ways):
        rows.append(row)
        print(*row.values(), file=sys.stderr, flush=True)
    print(table(rows))
    versions = {"llama.cpp": VERSIONS["llama.cpp"]}
    write_json(options.json, pytest_json([], "benches/rounding", rows=rows, versions=versions))


if __name__ == "__main__":
    main()
