"""What a language model loses when it is quantized, at equal bytes, judged by llama.cpp.

    python -m benches.rounding [MODEL --text TEXT --heldout TEXT] [--types Q4_0,Q4_K_M,3.5]
        [--by "gptq, text;llama.cpp"] [--json FILE]

Without a model it is the shipped storyteller, with stories of its grammar. A number in the place of
a type is `quantize --bits --calibrate TEXT`, which llama.cpp does not have.

Files are halfbyte's, by each method, and those of llama.cpp's quantizer, without and with
importance (which halfbyte computes on TEXT, as llama-imatrix does). llama.cpp computes the logits
of all of them, and of the model in F32, on the held-out texts, which are separated by empty lines.
The table has the mean KL divergence from the distributions in F32, the perplexity, and how often
the likeliest token is the same. With --json, other rows that the file has stay there.
"""

from __future__ import annotations

import argparse
import datetime
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
from benches import tables
from benches.figures import add_json_option, command_of, pytest_json, write_json
from benches.prepare import VERSIONS, python_of
from benches.quality import HELDOUT, MODEL, ROOT
from tests.judges.test_llama_cpp import as_f32, divergence, log_softmax

from halfbyte.quantize import quantize_file
from halfbyte.quantize.calibration.imatrix import read_imatrix
from halfbyte.quantize.presets import canonical, presets
from halfbyte.text.opening import open_model
from halfbyte.text.tokenizers import from_metadata

WORKER = Path(__file__).with_name("peers") / "rounding_worker.py"
PEERS = {"llama.cpp": False, tables.IMPORTANCE: True}
METHODS = "rtn", "search", "search, text", "gptq", "gptq, text", "tuned", "tuned, text"
WAYS = [*METHODS, *PEERS]
TYPES = "Q4_0,Q4_K_M,Q3_K_M,IQ4_XS"
OWN_TYPES = "Q4_0,IQ4_NL,4.5,5,5.5,6,6.5,7,7.5,8,8.5"  # which the storyteller's 128 columns fill
OF_BITS = "gptq, text"
STORIES, STORIES_SEED = 200, 2  # to calibrate with; the storyteller was trained with another seed
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
            "type": "F32", "by": "", "bytes": floats.stat().st_size, **judge.judged(expected)
        }  # fmt: skip
        target = folder / "quantized.gguf"
        pairs = itertools.product(kinds, ways)
        for kind, way in (pair for pair in pairs if pair[0] in presets() or pair[1] == OF_BITS):
            start, quantize = time.perf_counter(), []
            if way in PEERS:
                number = presets()[kind].file_type
                quantize = [[*map(str, (floats, target)), number, str(importance) * PEERS[way]]]
            else:
                _quantize(floats, kind, target, way, text)
            seconds = time.perf_counter() - start
            judged = judge.judged(logits_of(target, texts, quantize))
            row = {"type": kind, "by": way, "bytes": target.stat().st_size, **judged}
            yield row if way in PEERS else {**row, "seconds": seconds}
            target.unlink()


def _quantize(floats: Path, kind: str, target: Path, way: str, text: Path) -> None:
    method, _, data = way.partition(", ")
    options: dict[str, Any] = {"calibrate": text} if data else {}
    options |= {"type": kind} if kind in presets() else {"bits": float(kind)}
    quantize_file(floats, output=target, method=method, **options)


def merged(rows: list[dict[str, Any]], path: Path | None) -> list[dict[str, Any]]:
    """These rows, and those of other files that a file of figures has: by model and type, types in
    the order in which they came, ways in that of `WAYS`."""
    old = json.loads(path.read_text("utf-8"))["rows"] if path and path.exists() else []
    by_file = {(row["model"], row["type"], row["by"]): row for row in [*old, *rows]}
    order = list(dict.fromkeys((model, kind) for model, kind, _ in by_file))
    models = list(dict.fromkeys(model for model, _ in order))

    def place(key: tuple[str, str, str]) -> tuple[int, int, int]:
        model, kind, way = key
        return models.index(model), order.index((model, kind)), WAYS.index(way) if way else -1

    return [by_file[key] for key in sorted(by_file, key=place)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.rounding", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("model", type=Path, nargs="?", default=MODEL, help="in floats")
    add("--text", type=Path, help="to calibrate with")
    add("--heldout", type=Path, default=HELDOUT, help="to judge by")
    add("--name", help="the model's in the table; by default the file's")
    add("--types", help=f"default: {TYPES}")
    add("--by", default=";".join(WAYS), help='default: "%(default)s"')
    add_json_option(parser)
    options = parser.parse_args()
    own = options.model == MODEL
    if not own and options.text is None:
        parser.error("--text, --heldout: expected texts for a model of your own")
    types = options.types or (OWN_TYPES if own else TYPES)
    kinds = [kind if _is_number(kind) else canonical(kind) for kind in types.split(",")]
    ways = options.by.split(";")
    if unknown := set(ways) - {*WAYS}:
        parser.error(f"--by: expected some of {'; '.join(WAYS)}, found {', '.join(unknown)}")
    with tempfile.TemporaryDirectory() as folder:
        text = options.text or _stories(Path(folder) / "stories.txt")
        measured = measure(options.model, text, options.heldout, kinds, ways)
        report(options.name or options.model.stem, measured, options.json)


def report(name: str, measured: Iterator[dict[str, Any]], path: Path | None) -> None:
    """Print the rows, and write them beside those that a file has."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    rows, versions = [], {"llama.cpp": VERSIONS["llama.cpp"]}
    for row in measured:
        rows.append({"model": name, **row, "date": today})
        print(tables.rounding(rows[-1:]).splitlines()[-1], flush=True)
        every = merged(rows, path)
        content = pytest_json([], "benches/rounding", rows=every, versions=versions)
        content["command"] = command_of("benches/rounding", [])  # of rows of earlier runs, too
        write_json(path, content)
    print(tables.rounding(rows))


def _stories(path: Path) -> Path:
    """The text to calibrate the storyteller with."""
    sys.path.insert(0, str(ROOT / "tools"))  # whose scripts import each other by name
    from storyteller_grammar import stories

    some = itertools.islice(stories(STORIES_SEED), STORIES)
    path.write_text("\n\n".join(some), encoding="utf-8")
    return path


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


if __name__ == "__main__":
    main()
