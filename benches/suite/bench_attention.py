"""Attention over a cache by variant, its type and context, and over whole texts, as in encoders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
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
    softcap: float = 0
    by_distance: bool = False  # ALiBi's slopes
    sinks: bool = False

    def record(self, program: Program, cache: str, n: int, context: int) -> Buffer:
        """n rows at the end of the context."""
        g, h = self.kv_heads, self.head
        q = program.input("q", "f32", (n, self.heads * h))
        k = program.cache("k", cache, (g, context // ops.KEY_BLOCK, h, ops.KEY_BLOCK))
        v = program.cache("v", cache, (g, context, h))
        of_heads = np.linspace(0.1, 1, self.heads, dtype=np.float32)
        slopes = program.constant("slopes", of_heads) if self.by_distance else None
        sinks = program.constant("sinks", of_heads) if self.sinks else None
        return ops.group_query_attention(  # type: ignore[no-any-return]
            q, k, v, slopes, sinks, position=context - n, scale=h**-0.5, window=self.window,
            softcap=self.softcap,
        )  # fmt: skip


VARIANTS = {
    "all heads": Variant(12, 12, 64),  # GPT-2
    "grouped": Variant(9, 3, 64),  # SmolLM2-135M
    "grouped, wide": Variant(32, 8, 128),  # Llama 3
    "window of 512": Variant(4, 1, 256, 512),  # Gemma 3
}
FURTHER = {  # with one type and one context
    "soft cap": Variant(8, 4, 256, softcap=50.0),  # Gemma 2
    "window of 128, sinks": Variant(64, 8, 64, 128, sinks=True),  # gpt-oss
    "by distance": Variant(32, 32, 128, by_distance=True),  # MPT
}
CONTEXTS = (128, 1024, 4096)
TEXTS = (128, 512)  # tokens
SHORT = {("grouped", 1024), ("grouped, wide", 1024)}


def cases() -> list[object]:
    """The usual variants in F16 and Q8_0, one in F32 too."""
    every = [
        pytest.param(
            name, cache, context, n, id=f"{name}-{cache}-{context}-{n}",
            marks=[pytest.mark.short] if (name, context) in SHORT else [],
        )
        for name in VARIANTS
        for cache in ("f16", "q8_0", *(["f32"] if name == "grouped" else []))
        for context in CONTEXTS
        for n in (1, 128)
    ]  # fmt: skip
    return [*every, *((name, "f16", 1024, n) for name in FURTHER for n in (1, 128))]


@pytest.mark.parametrize(("name", "cache", "context", "n"), cases())
def bench_attention(bench: Bench, name: str, cache: str, context: int, n: int) -> None:
    variant = {**VARIANTS, **FURTHER}[name]
    program = programs.build("a", lambda p: variant.record(p, cache, n, context))
    test = f"{n} of {context}"
    bench.measure([programs.contender(program, f"{name}, {cache}", test)], "clock")


@pytest.mark.parametrize("tokens", TEXTS)
@pytest.mark.parametrize("kind", ["float32", "int8"])
def bench_text(bench: Bench, kind: str, tokens: int) -> None:
    """All tokens of a text with each other, in BERT base's heads."""
    heads, head = 12, 64
    operator = ops.attention_texts_int8 if kind == "int8" else ops.attention_texts

    def record(program: Program) -> Buffer:
        q, k, v = (program.input(name, "f32", (tokens, heads * head)) for name in "qkv")
        blocks = program.constant("blocks", ops.text_blocks([tokens]))
        return operator(q, k, v, blocks, heads=heads, kv_heads=heads, d=head, scale=head**-0.5)  # type: ignore[no-any-return]

    program = programs.build("a", record)
    test = f"{tokens} of {tokens}"
    bench.measure([programs.contender(program, f"text, {kind}", test)], "clock")
