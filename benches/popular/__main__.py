"""Models of today with random weights: each is quantized, and answers here and in a tab.

    python -m benches.popular [-m NAME,...] [--preset int4] [--keep] [--json FILE]

With --json, rows of other models that the file has stay there.

The sizes are those of the published models (`benches.popular.configs`), and so are the names of
tensors: `transformers` writes each folder, in the environment that `make judge` sets up. Peaks are
of the whole process, mapped files included; a tab's memory is Pyodide's heap and the shared memory.
Folders of gigabytes are written into build/popular, one at a time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benches import tables
from benches.browser.python import python_tabs
from benches.figures import add_json_option, command_of, pytest_json, write_json
from benches.popular.configs import CONFIGS
from benches.prepare import ROOT

FOLDER = ROOT / "build/popular"
JUDGE = ROOT / ".venv-judge/bin/python"
CONTEXT, TOKENS = 1024, 16
PROMPT = "Once upon a time"

COMMAND = """
import json, sys, time
from halfbyte.cli import main
from halfbyte.text import footprint
start = time.perf_counter()
figures = [main(sys.argv[1:]) or 0, time.perf_counter() - start, footprint.peak_bytes()]
print(json.dumps(figures), file=sys.stderr)
"""
ANSWER = """
import time
import halfbyte, pyodide_js
start = time.perf_counter()
model = await halfbyte.load_url("/models/model.gguf", keep=False, context={context})
text = model.generate({prompt!r}, max_tokens={tokens}, temperature=0)
memory = getattr(model.executable._library.memory, "bytes", None)
[time.perf_counter() - start, len(pyodide_js._module.HEAPU8) + (memory.size if memory else 0),
 model.executable.threads, len(text)]
"""


def halfbyte(*arguments: str | Path) -> tuple[float, int]:
    """Seconds and peak bytes of one of halfbyte's commands; raises `SystemExit` if it fails."""
    command = [sys.executable, "-c", COMMAND, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stderr.strip().splitlines() or [""]
    if done.returncode or not lines[-1].startswith("[0, "):
        raise SystemExit(f"halfbyte {' '.join(map(str, arguments))}:\n{done.stderr}")
    _, seconds, peak = json.loads(lines[-1])
    return seconds, peak


def in_a_tab(path: Path) -> dict[str, Any]:
    """Seconds to an answer and bytes of memory in a new tab, or why there is none."""
    code = ANSWER.format(context=CONTEXT, prompt=PROMPT, tokens=TOKENS)
    with python_tabs({"model.gguf": path}) as tab:
        try:
            seconds, nbytes, threads, _ = tab().run(code)
        except AssertionError as error:
            return {"reason": str(error).strip().splitlines()[-1]}
    return {"seconds": seconds, "bytes": nbytes, "threads": threads}


def measure(name: str, preset: str, keep: bool) -> dict[str, Any]:
    """The figures of one model."""
    slug = name.lower().replace(" ", "-")
    folder, file = FOLDER / slug, FOLDER / f"{slug}-{preset}.gguf"
    if not (folder / "tokenizer.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([JUDGE, "-m", "benches.popular.folder", name, folder], cwd=ROOT, check=True)
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors")) // 2  # BF16
    quantized, quantizing = halfbyte("quantize", folder, f"--{preset}", "-o", file, "--force")
    options = ("-n", str(TOKENS), "--context", str(CONTEXT), "--temp", "0", "--raw")
    answered, answering = halfbyte("run", file, PROMPT, *options)
    row = {
        "date": f"{datetime.date.today()}", "model": name, "type": CONFIGS[name]["model_type"],
        "weights": weights,
        "file": file.stat().st_size, "quantize": [quantized, quantizing],
        "answer": [answered, answering], "tab": in_a_tab(file),
    }  # fmt: skip
    if not keep:
        shutil.rmtree(folder)
        file.unlink()
    return row


def merged(rows: list[dict[str, Any]], path: Path | None) -> list[dict[str, Any]]:
    """These rows, and those of other models that a file of figures has, in the list's order."""
    old = json.loads(path.read_text("utf-8"))["rows"] if path and path.exists() else []
    by_name = {row["model"]: row for row in [*old, *rows]}
    return [by_name[name] for name in CONFIGS if name in by_name]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.popular", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("-m", "--models", help=f"some of: {', '.join(CONFIGS)}")
    parser.add_argument("--preset", default="int4", help="of quantize (default int4)")
    parser.add_argument("--keep", action="store_true", help="leave folders and files there")
    add_json_option(parser)
    options = parser.parse_args()
    if not JUDGE.exists():
        parser.error(f"{JUDGE}: not there; `make judge` sets it up")
    names = options.models.split(",") if options.models else list(CONFIGS)
    if unknown := [name for name in names if name not in CONFIGS]:
        parser.error(f"{unknown[0]}: expected some of {', '.join(CONFIGS)}")
    rows = []
    for name in names:
        rows.append(measure(name, options.preset, options.keep))
        print(tables.popular(rows[-1:]).splitlines()[-1], flush=True)
        content = pytest_json([], "benches/popular", rows=merged(rows, options.json))
        content["command"] = command_of("benches/popular", [])  # of rows of earlier runs, too
        write_json(options.json, content)
    print(tables.popular(content["rows"]))


if __name__ == "__main__":
    main()
