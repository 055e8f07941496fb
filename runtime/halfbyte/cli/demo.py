"""``halfbyte demo``: the shipped storyteller, quantized to int4, tells a story."""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import as_file, files
from pathlib import Path

from halfbyte.quantize import quantize_file
from halfbyte.text.loading import load
from halfbyte.text.sampling import Sampler


def run(seed: int) -> int:
    """Quantize, tell a story, print sizes and speed; returns the exit code."""
    Sampler(seed=seed)  # refuses it before any work is done
    with as_file(files("halfbyte") / "data") as data, tempfile.TemporaryDirectory() as folder:
        source = data / "storyteller.bin"
        target = Path(folder) / "storyteller-int4.gguf"
        print(f"$ quantize {source.name} --int4", file=sys.stderr)
        quantize_file(source, "int4", target)
        before, after = source.stat().st_size, target.stat().st_size
        print(
            f"{source.name} {before / 1e6:.2f} MB -> {target.name} {after / 1e6:.2f} MB "
            f"({before / after:.1f} x smaller)",
            file=sys.stderr,
        )
        print(f"$ halfbyte run {target.name} --temp 0.8 --seed {seed}\n", file=sys.stderr)
        with load(target) as model:
            generation = model.generation(temperature=0.8, seed=seed)
            for piece in generation:
                sys.stdout.write(piece)
                sys.stdout.flush()
            print()
            print(
                f"\n{len(generation.ids)} tokens at {generation.decode_speed:.0f} tokens/s "
                f"({model.executable.backend}, {model.executable.threads} threads)",
                file=sys.stderr,
            )
    return 0
