"""``halfbyte demo``: quantizes the shipped storyteller to int4 and lets it tell a story."""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.resources import as_file, files
from pathlib import Path

from halfbyte.cli.common import add_debug
from halfbyte.cli.parser import Commands, Parser, whole
from halfbyte.text.loading import load
from halfbyte.text.sampling import Sampler


def add_demo(commands: Commands[Parser]) -> None:
    """The command `demo`."""
    text = "quantize the shipped storyteller to int4 and let it tell a story"
    parser = commands.add_parser("demo", help=text, examples=["halfbyte demo --seed 3"])
    parser.add_argument(
        "--seed", type=whole, metavar="N", default=7, help="another seed, another story"
    )
    add_debug(parser)
    parser.set_defaults(command=_demo)


def _demo(options: argparse.Namespace) -> int:
    """Quantize, tell a story, print sizes and speed."""
    from halfbyte.quantize import quantize_file

    Sampler(seed=options.seed)  # refuses a bad seed before any work is done
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
        print(f"$ halfbyte run {target.name} --temp 0.8 --seed {options.seed}\n", file=sys.stderr)
        _tell(target, options.seed)
    return 0


def _tell(path: Path, seed: int) -> None:
    with load(path) as model:
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
