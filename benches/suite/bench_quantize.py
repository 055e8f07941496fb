"""The command `quantize` on whole models, by type; its encoders only are in `bench_encode`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from benches import prepare
from benches.case import Bench
from benches.figures import Series
from benches.turns import settled
from benches.yardstick import yardstick

from halfbyte.quantize import quantize_file

STORYTELLER = prepare.ROOT / "runtime/halfbyte/data/storyteller.bin"
CASES = [
    *(pytest.param("storyteller", preset, marks=pytest.mark.short) for preset in ("int8", "int4")),
    *(
        pytest.param("135M F16", preset, marks=pytest.mark.once)
        for preset in ("fp16", "int8", "int4", "Q4_K_M")
    ),
]


@pytest.mark.parametrize(("name", "preset"), CASES)
def bench_quantize(bench: Bench, name: str, preset: str, tmp_path: Path) -> None:
    """Reading, encoding on one thread and writing."""
    small, clock = name == "storyteller", yardstick("clock")
    source = STORYTELLER if small else prepare.model(name)
    more = {"bytes": source.stat().st_size}
    series = Series(name, "halfbyte", f"to {preset}", 1, more=more, yardstick="clock")

    def rounds() -> None:
        for _ in range(bench.rounds if small else 3):
            series.beside.append(clock.seconds())
            start = time.perf_counter()
            quantize_file(source, preset, tmp_path / "out.gguf", threads=1)
            series.seconds.append(time.perf_counter() - start)

    settled([series], rounds)
    bench.keep(series)
