"""One encoder as GGUF and as ONNX, both in int8: time of a text, taking turns.

    python -m benches.encoders [-t THREADS]

all-MiniLM-L6-v2 comes from `tools/make_encoder.py`; both files are quantized from its weights.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tools.get_minilm import get_minilm
from tools.make_encoder import make_encoder

import halfbyte
from halfbyte.quantize import quantize_file

TOKENS = (8, 32, 128, 256)
ROUNDS = 60


def medians(runs: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Median milliseconds of each, run in turns after two rounds that do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 2):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if number >= 2:
                seconds[name].append(time.perf_counter() - start)
    return {name: 1000 * float(np.median(times)) for name, times in seconds.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Compare an encoder as GGUF and as ONNX.")
    parser.add_argument("-t", "--threads", type=int, default=1)
    threads = parser.parse_args().threads
    options = halfbyte.SessionOptions()
    options.intra_op_num_threads = threads
    session = halfbyte.InferenceSession(make_encoder(), options)
    with tempfile.TemporaryDirectory() as folder:
        path, floats = Path(folder) / "minilm.gguf", get_minilm()
        quantize_file(floats, "int8", path)
        with (
            halfbyte.load_encoder(path, threads=threads) as encoder,
            halfbyte.load_encoder(floats, threads=threads) as exact,
        ):
            print(f"{encoder.executable.backend}, {threads} threads")
            words = ["the", "cat", "sat", "on", "a", "mat", "and", "looked", "at", "old", "trees"]
            for count in TOKENS:
                text = " ".join(words[i * 7 % len(words)] for i in range(count - 2))
                ids = np.array([encoder.tokenizer.encode(text)], np.int64)
                assert ids.shape == (1, count)
                feeds = {
                    x.name: np.zeros_like(ids) if "type" in x.name else ids if "ids" in x.name
                    else np.ones_like(ids) for x in session.get_inputs()
                }  # fmt: skip
                took = medians(
                    {
                        "gguf": lambda text=text: encoder.embed([text]),
                        "onnx": lambda feeds=feeds: session.run(None, feeds),
                        "eight": lambda text=text: encoder.embed([text] * 8),
                    }
                )
                one, other = encoder.embed([text])[0], exact.embed([text])[0]
                cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
                print(
                    f"{count:4} tokens: GGUF {took['gguf']:6.2f} ms, ONNX {took['onnx']:6.2f} ms, "
                    f"{took['onnx'] / took['gguf']:.2f} times; of eight texts together "
                    f"{took['eight'] / 8:6.2f} ms each; cosine with F32 {cosine:.5f}"
                )


if __name__ == "__main__":
    main()
