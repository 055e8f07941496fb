"""Products of activations with weight matrices, by type and shape.

In block formats activations are int8 and weights packed, as models have them; else they are floats.
Formats that a model keeps in memory in another one are left out. One row is decoding, 128 are a
prompt.
"""

from __future__ import annotations

import pytest
from benches import programs
from benches.case import Bench

from halfbyte.weights import FORMATS

SHAPES = ((128, 128), (576, 576), (1536, 576), (2048, 2048), (4096, 4096), (11008, 4096))
LARGEST = (32000, 4096)
TYPES = [name for name, kind in FORMATS.items() if kind.packed or kind.block == 1]
SHORT = {"F16", "Q8_0", "Q4_0", "Q4_K"}
CACHE_BYTES = 16 << 20  # matrices beyond do not stay in the cache


def cases() -> list[object]:
    """All types in one middle shape; the usual ones in every shape."""
    chosen = []
    for kind in TYPES:
        shapes = (*SHAPES, LARGEST) if kind in ("Q8_0", "Q4_0") else SHAPES
        for m, k in shapes:
            usual = kind in SHORT and (m, k) != LARGEST
            if (kind not in SHORT and (m, k) != (2048, 2048)) or (k % 256 and kind.endswith("_K")):
                continue
            for n in (1, 128):
                short = usual and (m, k) in ((576, 576), (2048, 2048))
                marks = [pytest.mark.short] if short else []
                chosen.append(pytest.param(kind, m, k, n, marks=marks, id=f"{kind}-{m}x{k}-{n}"))
    return chosen


@pytest.mark.parametrize(("kind", "m", "k", "n"), cases())
def bench_product(bench: Bench, kind: str, m: int, k: int, n: int) -> None:
    program = programs.build("product", programs.product(kind, n, m, k))
    rows = f"{n} row{'s' * (n > 1)}"
    one = programs.contender(program, f"{kind} {m}x{k}", rows)
    large = one.series.more["bytes"] > CACHE_BYTES
    integers = programs.FORMATS[kind].block > 1
    several = "dot" if integers else "clock"
    bench.measure([one], several if n > 1 else "memory" if large else "clock")
