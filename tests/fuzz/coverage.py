"""Guided by coverage, where atheris is installed; it ends at the first file that fails."""

from __future__ import annotations

import random
import sys
from importlib import import_module
from typing import Any, NoReturn

from tests.fuzz.runner import REPRODUCERS, module_of

from halfbyte.errors import HalfbyteError


def fuzz(name: str) -> NoReturn:
    """Run until something fails, or forever; what covers more is kept in build/fuzz."""
    try:
        atheris: Any = import_module("atheris")
    except ImportError:
        sys.exit("--coverage: expected the package atheris; pip install atheris")
    with atheris.instrument_imports(include=["halfbyte"]):
        module = module_of(name)
    kept = REPRODUCERS / f"{name}-corpus"
    kept.mkdir(parents=True, exist_ok=True)
    for index, data in enumerate(module.corpus()):
        (kept / f"seed-{index}").write_bytes(data)

    def one(data: bytes) -> None:
        try:
            module.target(data)
        except HalfbyteError:
            return

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return module.mutate(data, chance)[:most]

    atheris.Setup([sys.argv[0], str(kept)], one, custom_mutator=mutate)
    atheris.Fuzz()
    sys.exit(0)
