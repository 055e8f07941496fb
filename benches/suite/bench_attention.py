"""Attention over a cache of keys and values, by variant, type of the cache and context."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from benches import programs
from benches.case import Bench

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer
from halfbyte.core.program import Program


@dataclass(frozen=True)
class Variant:
    """Heads of a known model."""

    heads: int
    kv_heads: int
    head: int
    window: int = 0

    def record(self, program: Program, cache: str, n: int, context: int) -> Buffer:
        """n rows at the end of the context."""
        g, h = self.kv_heads, self.head
        q = program.input("q", "f32", (n, self.heads * h))
        k = program.cache("k", cache, (g, context // ops.KEY_BLOCK, h, ops.KEY_BLOCK))
        v = program.cache("v", cache, (g, context, h))
        return ops.group_query_attention(  # type: ignore[no-any-return]
            q, k, v, position=context - n, scale=h**-0.5, window=self.window
        )


VARIANTS = {
    "all heads": Variant(12, 12, 64),  # GPT-2
    "grouped": Variant(9, 3, 64),  # SmolLM2-135M
    "grouped, wide": Variant(32, 8, 128),  # Llama 3
    "window of 512": Variant(4, 1, 256, 512),  # Gemma 3
}
CONTEXTS = (128, 1024, 4096)


SHORT = {("grouped", 1024), ("grouped, wide", 1024)}


def cases() -> list[object]:
    """All variants in F16 and Q8_0, one in F32 too."""
    return [
        pytest.param(
            name, cache, context, n, id=f"{name}-{cache}-{context}-{n}",
            marks=[pytest.mark.short] if (name, context) in SHORT else [],
        )
        for name in VARIANTS
        for cache in ("f16", "q8_0", *(["f32"] if name == "grouped" else []))
        for context in CONTEXTS
        for n in (1, 128)
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "cache", "context", "n"), cases())
def bench_attention(bench: Bench, name: str, cache: str, context: int, n: int) -> None:
    program = programs.build("a", lambda p: VARIANTS[name].record(p, cache, n, context))
    test = f"{n} of {context}"
    bench.measure([programs.contender(program, f"{name}, {cache}", test)], "clock")
