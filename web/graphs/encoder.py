"""Sentence embeddings: an ONNX encoder and its tokenizer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError
from halfbyte.text.tokenizers import Tokenizer
from halfbyte.web.graphs.graph_model import GraphModel

F32Array = npt.NDArray[np.float32]

LENGTHS = (16, 32, 64, 128)  # tokens: few lengths, since each length and batch has a program
BATCH_TOKENS = 128  # per run
IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


@dataclass(frozen=True)
class Embedded:
    """Vectors [texts, width], and the seconds that the model took.

    `each` is the seconds per text of runs whose program existed already; None if there were none.
    """

    vectors: F32Array
    seconds: float
    each: float | None


class Encoder:
    """Turns texts into vectors of unit length.

    The model takes ids and optionally a mask and types, each [batch, tokens]. It returns an
    embedding per text, [batch, width], or per token, [batch, tokens, width], of which the mean over
    the text's tokens is taken. Its file says of no `prompts`.

    Raises
    ------
    HalfbyteError
        The model is not an encoder.
    """

    prompts = "", ""

    def __init__(self, model: GraphModel, tokenizer: Tokenizer) -> None:
        self.model, self._tokenizer = model, tokenizer
        self._inputs = {arg.name: _INTEGERS.get(arg.type) for arg in model.inputs}
        if IDS not in self._inputs or not {IDS, MASK, TYPES}.issuperset(self._inputs):
            raise HalfbyteError(
                f"{model.name}: its inputs are {', '.join(map(repr, self._inputs))}: expected a "
                f"sentence encoder's, {IDS!r} and optionally {MASK!r} and {TYPES!r}"
            )
        if None in self._inputs.values():
            raise HalfbyteError(f"{model.name}: expected inputs of type int64 or int32")
        self._output = self._chosen()
        self._lengths, self._batch = self._sizes()
        self._programs: set[tuple[int, int]] = set()  # lengths and batches that have a program
        self.cut = 0  # texts of the last call that were too long

    def _chosen(self) -> str:
        """The output to use: an embedding per text if there is one."""
        by_rank = {rank: [o.name for o in self.model.outputs if len(o.shape) == rank and
                          o.type.startswith("tensor(float")] for rank in (2, 3)}  # fmt: skip
        for name in (*by_rank[2], *by_rank[3]):
            if "sentence" in name or "embed" in name:
                return str(name)
        first = [*by_rank[3], *by_rank[2]]
        if not first:
            raise HalfbyteError(
                f"{self.model.name}: no output with embeddings: expected [batch, width] or "
                "[batch, tokens, width]"
            )
        return str(first[0])

    def _sizes(self) -> tuple[list[int], int | None]:
        """Lengths in tokens to choose from, and the batch if the model fixes one."""
        shape = next(arg.shape for arg in self.model.inputs if arg.name == IDS)
        batch, length = shape if len(shape) == 2 else (None, None)
        lengths = [length] if isinstance(length, int) else list(LENGTHS)
        return lengths, batch if isinstance(batch, int) else None

    async def embed(self, texts: Sequence[str], progress: Callable[[int], bool]) -> Embedded:
        """Vectors of texts.

        `progress` is called with the number of embedded texts; if it returns False, the rest is
        left out, with rows of 0.
        """
        ids = [self._tokenizer.encode(text) for text in texts]
        sizes = [len(tokens) for tokens in ids]
        self.cut = sum(size > self._lengths[-1] for size in sizes)
        embeddings: F32Array = np.zeros((len(texts), 0), np.float32)
        done, timed = 0, 0
        seconds = timed_seconds = 0.0
        for rows, length, batch in batches(sizes, self._lengths, self._batch):
            start = time.perf_counter()
            vectors = self._run([ids[row] for row in rows], length, batch)
            taken = time.perf_counter() - start
            seconds += taken
            if (length, batch) in self._programs:
                timed, timed_seconds = timed + len(rows), timed_seconds + taken
            self._programs.add((length, batch))
            if not embeddings.shape[1]:
                embeddings = np.zeros((len(texts), vectors.shape[1]), np.float32)
            embeddings[rows] = vectors
            done += len(rows)
            if not progress(done):
                break
            await asyncio.sleep(0)  # lets a request to stop arrive
        return Embedded(embeddings, seconds, timed_seconds / timed if timed else None)

    def facts(self) -> dict[str, Any]:
        """The facts about the model and the machine that the page shows."""
        return {**self.model.facts(), "tokens": self._tokenizer.vocab_size, "notes": []}

    def close(self) -> None:
        """Close the model."""
        self.model.close()

    def _run(self, ids: list[list[int]], length: int, batch: int) -> F32Array:
        """Embeddings of a batch, padded to `length` tokens and `batch` texts."""
        tokens = np.zeros((batch, length), np.int64)
        mask = np.zeros_like(tokens)
        for row, one in enumerate(ids):
            kept = one if len(one) <= length else [*one[: length - 1], one[-1]]
            tokens[row, : len(kept)], mask[row, : len(kept)] = kept, 1
        values = {IDS: tokens, MASK: mask, TYPES: np.zeros_like(tokens)}
        feeds = {name: values[name].astype(dtype) for name, dtype in self._inputs.items()}
        [output] = self.model.run(feeds, [self._output])
        vectors = np.asarray(output, np.float32)
        if vectors.ndim == 3:
            weights = mask[:, :, None].astype(np.float32)
            vectors = (vectors * weights).sum(1) / np.maximum(weights.sum(1), 1)
        if vectors.ndim != 2 or len(vectors) != batch:
            raise HalfbyteError(
                f"{self.model.name}: {self._output!r} is {list(np.shape(output))}: expected "
                f"[{batch}, width] or [{batch}, {length}, width]"
            )
        vectors = vectors[: len(ids)]
        unit: F32Array = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return unit


def batches(
    sizes: Sequence[int], lengths: Sequence[int] = LENGTHS, batch: int | None = None
) -> Iterator[tuple[list[int], int, int]]:
    """Batches of texts of these sizes in tokens: rows of texts, length and batch to pad to.

    All batches of a length have one size, `batch` if given; a single text is a batch of its own.
    """
    waiting: dict[int, list[int]] = {length: [] for length in lengths}
    for row, size in enumerate(sizes):
        waiting[next((length for length in lengths if size <= length), lengths[-1])].append(row)
    for length, rows in waiting.items():
        several = max(BATCH_TOKENS // length, 1) if len(sizes) > 1 else 1
        count = batch or several
        for first in range(0, len(rows), count):
            yield rows[first : first + count], length, count
