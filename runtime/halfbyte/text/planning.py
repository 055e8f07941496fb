"""A model's program and the memory that it needs, by kind, before anything is allocated.

Nothing of a plan is changed later: tables of constants are computed when memory is allocated, and
packing returns another program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypedDict

from halfbyte.core import ops, packing
from halfbyte.core.buffer import Buffer
from halfbyte.core.passes import optimize
from halfbyte.core.passes.stream_weights import rows_within
from halfbyte.core.program import Program
from halfbyte.errors import HalfbyteError, MemoryBudgetError, TaskError, UnsupportedError
from halfbyte.formats import metadata
from halfbyte.formats.embedding import Pooling, read_embedding
from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.reading import Reader
from halfbyte.text import architectures, footprint
from halfbyte.text.architectures._keys import passed_over
from halfbyte.weights import F32, Tensor

DEFAULT_CONTEXT = 4096  # tokens, where the model allows more; the KV cache has this size
DEFAULT_BATCH = 128  # prompt tokens of one run
CACHES = ("auto", "f16", "f32", "q8_0", "smallest")
WEIGHTS = ("auto", "packed", "mapped", "streamed")


@dataclass(frozen=True)
class Settings:
    """The settings that memory and speed depend on; see :func:`halfbyte.load`."""

    context: int | None = None
    batch: int = DEFAULT_BATCH
    cache: str = "auto"
    weights: str = "auto"
    passes: bool = True
    activations: str = "int8"
    max_context: int = DEFAULT_CONTEXT
    lora: Mapping[str | os.PathLike[str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise HalfbyteError(f"batch of {self.batch} tokens: expected 1 or more")
        for name, choices in (
            ("cache", CACHES), ("weights", WEIGHTS), ("activations", ("int8", "float")),
        ):  # fmt: skip
            if getattr(self, name) not in choices:
                raise HalfbyteError(f"{name} '{getattr(self, name)}': expected one of {choices}")


# Each needs less memory than the one before. Their prices: pages that the system may drop; then
# precision and the speed of long prompts; then reading all weights for every token.
LEVELS = {
    "baseline": Settings(weights="packed"),
    "basic": Settings(weights="mapped"),
    "aggressive": Settings(weights="mapped", cache="smallest", batch=32, max_context=2048),
    "extreme": Settings(weights="streamed", cache="smallest", batch=16, max_context=1024),
}


class Given(TypedDict, total=False):
    """Settings that a caller gives."""

    context: int | None
    max_context: int
    batch: int
    cache: str
    weights: str
    passes: bool
    activations: str
    lora: Mapping[str | os.PathLike[str], float]


def settings_of(level: str | None, overrides: Given) -> Settings:
    """A level's settings, overridden by the given ones."""
    if level is not None and level not in LEVELS:
        raise HalfbyteError(f"level '{level}': expected one of {tuple(LEVELS)}")
    return replace(Settings() if level is None else LEVELS[level], **overrides)


@dataclass(frozen=True)
class Plan:
    """A program after all passes, and the memory that it needs.

    Attributes
    ----------
    to_pack : tuple of Buffer
        Weights to pack.
    to_copy : tuple of Buffer
        Weights to copy out of the file.
    reader : Reader or None
        Reads streamed weights.
    memory : mapping of str to int
        Bytes by kind; see :func:`halfbyte.text.footprint.planned`.
    settings : Settings
        The settings asked for, with the context that was chosen.
    """

    program: Program
    to_pack: tuple[Buffer, ...]
    to_copy: tuple[Buffer, ...]
    reader: Reader | None
    memory: Mapping[str, int]
    settings: Settings

    @property
    def total(self) -> int:
        """All bytes."""
        return sum(self.memory.values())


def plan(file: ModelFile, settings: Settings, *, encodes: bool = False) -> Plan:
    """Plan a model; nothing is allocated, no weight is read. For `encodes` see `capture_model`."""
    return _planned(file, settings, capture_model(file, settings, encodes=encodes))


def plan_within(file: ModelFile, settings: Settings, budget: int, *, encodes: bool = False) -> Plan:
    """The fastest plan that needs at most `budget` bytes, including the interpreter's.

    Weights "auto" are packed if they fit; otherwise as many matrices as fit are, and the others are
    streamed. No other setting is changed.

    Raises
    ------
    MemoryBudgetError
        Nothing fits; the message has the numbers.
    """
    captured = capture_model(file, settings, encodes=encodes)
    choices: tuple[str, ...] = (settings.weights,)
    if settings.weights == "auto":
        choices = ("packed", "streamed") if file.on_storage and settings.passes else ("packed",)
    for weights in choices:
        planned = _planned(file, replace(settings, weights=weights), captured)
        if planned.total <= budget:
            return (
                planned
                if weights == settings.weights
                else _holding(planned, budget, file, captured)
            )
    kinds = [f"{kind} {n / 1e6:.1f} MB" for kind, n in planned.memory.items() if n >= 5e4]
    raise MemoryBudgetError(
        f"{file.path}: expected to need at most {budget / 1e6:.1f} MB, found "
        f"{planned.total / 1e6:.1f} MB: {', '.join(kinds)}; a smaller context, a cache in q8_0 or "
        "a smaller batch needs less"
    )


def _holding(streamed: Plan, budget: int, file: ModelFile, captured: Program) -> Plan:
    """The plan with as many matrices in memory as the budget has room for."""
    if streamed.reader is None:
        return streamed
    room = budget - streamed.total
    while held := rows_within(captured, room):
        planned = _planned(file, streamed.settings, captured, held)
        if planned.total <= budget:
            return planned
        room -= planned.total - budget  # windows and scratch buffers overlap otherwise
    return streamed


def _planned(
    file: ModelFile,
    settings: Settings,
    captured: Program,
    held: Mapping[Buffer, int] | None = None,
) -> Plan:
    program, reader = captured, None
    if settings.weights == "streamed":
        if not settings.passes:
            raise HalfbyteError("weights 'streamed': expected passes on: one of them streams")
        reader = Reader(file, packing.pack_rows)
    if settings.passes:
        program = optimize(
            captured, int8_activations=settings.activations == "int8", reader=reader, held=held
        )
    to_pack = packing.to_pack(program, settings.weights)
    to_copy = packing.to_copy(program, to_pack, streams=reader is not None)
    memory = footprint.planned(
        program, file.tensors["token_embd.weight"].shape[0], to_pack, to_copy,
        merges=_count(file.metadata.get("tokenizer.ggml.merges")),
    )  # fmt: skip
    return Plan(
        program, tuple(to_pack), tuple(to_copy), reader, MappingProxyType(memory),
        replace(settings, context=context_of(program)),
    )  # fmt: skip


def _count(value: object) -> int:
    return len(value) if isinstance(value, list) else 0


def context_of(program: Program) -> int:
    """Tokens of the longest text; an encoder has no position, and reads a text in one run."""
    return program.sizes.get("position", program.sizes["n"]).maximum


def capture_model(
    file: ModelFile, settings: Settings | None = None, *, encodes: bool = False
) -> Program:
    """The program of a model file before any pass.

    With `encodes` it gives vectors of tokens, `hidden`, in place of logits.

    Raises
    ------
    TaskError
        The architecture gives only the other of the two.
    UnsupportedError
        The file has something that halfbyte does not implement.
    """
    settings = settings or Settings()
    architecture = architectures.find(file)
    config = architecture.read_config(file)
    context = settings.context
    if context is None:
        longest = read_embedding(file).max_length if encodes else None
        context = min(config.context, settings.max_context, longest or config.context)
    if not 1 <= context <= config.context:
        raise HalfbyteError(
            f"{file.path}: context of {context} tokens: expected 1 to {config.context}"
        )
    program = architecture.build(
        file, config, context=context, batch=min(settings.batch, context),
        cache=_cache(file, settings.cache, config.head_dim),
    )  # fmt: skip
    program.notes += passed_over(file, encodes=encodes)
    used = architecture.TABLES | {_origin(buffer) for buffer in program.buffers}
    spare = getattr(config, "spare", ())
    for name in file.tensors:
        if name not in used and not name.startswith(spare):
            raise UnsupportedError(
                f"{file.path}: tensor {name!r}: architecture "
                f"{metadata.text(file, 'general.architecture')!r} does not use it as halfbyte "
                "runs it, and without it the model would compute something else"
            )
    if encodes and "logits" in program.outputs:
        return _without_head(file, program)
    if settings.lora:
        from halfbyte.text.adapters import adapted  # which a page of text goes without

        program = adapted(program, file, settings.lora)
    if not encodes and "hidden" in program.outputs:
        name = metadata.text(file, "general.architecture")
        raise TaskError(
            f"{file.path}: architecture {name!r} writes no text, it turns texts into vectors: "
            "expected a language model; load_encoder and `halfbyte embed` run it"
        )
    return program


def _without_head(file: ModelFile, program: Program) -> Program:
    """A language model up to the vectors that its head reads."""
    pooling = read_embedding(file).pooling
    if pooling is not Pooling.LAST:
        raise TaskError(
            f"{file.path}: expected a model that turns texts into vectors: an encoder, or one "
            f"with pooling 'last'; found a language model with pooling {pooling.name.lower()!r}"
        )
    heads = ("output.weight", "token_embd.weight")
    last = max(
        number
        for number, i in enumerate(program.instructions)
        if i.operator is ops.matmul and i.operands["w"].name in heads
    )
    hidden = program.instructions[last].operands["x"]
    body = program.rewritten(program.instructions[:last])
    body.outputs.clear()
    body.output("hidden", hidden)
    return body


def _origin(buffer: Buffer) -> str:
    """The name of the file's tensor that a buffer holds, or holds a part of."""
    tensor = buffer.value
    return (tensor.whole or tensor).name if isinstance(tensor, Tensor) else buffer.name


def _cache(file: ModelFile, cache: str, head_dim: int) -> str:
    """The KV cache's type: F32 for models in F32, so that perplexity is exact to 1e-4."""
    if cache == "smallest" and head_dim % 32 == 0 and head_dim <= ops.MAX_Q8_0_HEAD:
        return "q8_0"
    if cache in ("auto", "smallest"):
        return "f32" if file.tensors["token_embd.weight"].format is F32 else "f16"
    return cache
