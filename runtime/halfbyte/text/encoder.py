"""Texts in, vectors out; or pairs of texts in, scores out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte import arguments
from halfbyte.core import ops
from halfbyte.core.backends import open_program
from halfbyte.core.program import Program
from halfbyte.core.turns import Turns
from halfbyte.errors import HalfbyteError
from halfbyte.formats.embedding import Pooling, read_embedding
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.batches import Text, batches, pair, single
from halfbyte.text.heads import DenseLayers, ScoringHead
from halfbyte.text.planning import context_of
from halfbyte.text.tokenizers import Tokenizer
from halfbyte.weights import F32Array

Progress = Callable[[int], object]  # texts that are done
_SMALLEST = 1e-12  # length of a vector below which it is not scaled to 1


class TextEncoder:
    """A model that turns texts into vectors, or scores pairs of texts; see `load_encoder`.

    Several short texts run at once, without padding: a text's vector does not depend on those
    beside it. Any number of threads may use one model.

    Attributes
    ----------
    file : ModelFile
        Metadata and tensors, as they were read.
    tokenizer : Tokenizer
        Text <-> token ids.
    program : Program
        Runs for every batch of texts.
    prompts : mapping of str to str
        What may be put before a text, such as "query: ", by name.
    notes : list of str
        Metadata that was ignored, and what is not exact.
    context : int
        Tokens of the longest text; longer ones are cut.
    cut : int
        Texts of the last call that were cut.
    width : int
        Numbers of a vector.
    room : float
        Bytes of the memory budget that the plan leaves; infinite without a budget.
    """

    def __init__(
        self, file: ModelFile, tokenizer: Tokenizer, program: Program, backend: str, threads: int,
        room: float = math.inf,
    ) -> None:  # fmt: skip
        self.file, self.tokenizer, self.program, self.room = file, tokenizer, program, room
        self.notes = [*file.notes, *program.notes]
        self._settings = read_embedding(file)
        self.prompts = self._settings.prompts
        self.context = context_of(program)
        self.cut = 0
        self._hidden = int(file.tensors["token_embd.weight"].shape[1])
        self._dense = DenseLayers(file, self._hidden)
        self.width = self._dense.width
        types = file.tensors.get("token_types.weight")
        self._has_types = types is not None and types.row_count > 1  # BERT's, for pairs
        self._head = ScoringHead(file) if self.pooling is Pooling.RANK else None
        self._pools = self._head.pooling if self._head else self.pooling
        self.executable = open_program(program, backend, threads)
        closed = f"{file.path}: the model is closed"
        self._turns = Turns(lambda: HalfbyteError(closed))

    @property
    def path(self) -> Path:
        """The file this model was loaded from."""
        return self.file.path

    @property
    def pooling(self) -> Pooling:
        """How a text's vector is made of those of its tokens."""
        return self._settings.pooling

    @property
    def default_prompt(self) -> str:
        """What is put before a text if nothing else is said."""
        return self._settings.prompt

    def embed(
        self,
        texts: Iterable[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize: bool | None = None,
        progress: Progress | None = None,
    ) -> F32Array:
        """Vectors of texts: near for texts of similar meaning.

        Parameters
        ----------
        texts : iterable of str
            Each is cut to the context.
        prompt_name : str, optional
            Name of one of the model's `prompts`, which is put before each text, such as "query" for
            questions and "document" for what answers them. By default the file's own default, if
            it has one.
        prompt : str, optional
            A prompt's text itself, in place of a name.
        normalize : bool, optional
            Scale vectors to length 1, so that products are cosines; by default as the file says.
        progress : callable, optional
            Called with the number of texts that are done.

        Returns
        -------
        float32 [texts, width]

        Raises
        ------
        HalfbyteError
            The model scores pairs, has no such prompt, or is closed.
        ArgumentTypeError
            An argument has a wrong type.
        """
        if self._head is not None:
            raise HalfbyteError(f"{self.path}: scores pairs of texts: expected rerank, found embed")
        before = self._prompt(prompt_name, prompt)
        encoded = [
            single(self.tokenizer, before + text, self.context)
            for text in arguments.texts("texts", texts)
        ]
        vectors = self._dense(self._vectors(encoded, progress))
        if self._settings.normalize if normalize is None else normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _SMALLEST)
        return vectors

    def rerank(
        self, query: str, texts: Iterable[str], *, progress: Progress | None = None
    ) -> F32Array:
        """How well texts answer a query, by a model that reads both at once.

        Returns
        -------
        float32 [texts]
            Scores (logits): larger is better; 1 / (1 + exp(-score)) is a probability.

        Raises
        ------
        HalfbyteError
            The model has no head that scores pairs, or is closed; the query leaves no room.
        """
        if self._head is None:
            raise HalfbyteError(
                f"{self.path}: has no head that scores pairs of texts: expected a cross-encoder, "
                "such as ms-marco-MiniLM; embed compares vectors"
            )
        asked = self.tokenizer.encode(arguments.text("query", query), add_special_tokens=False)
        kind = int(self._has_types)
        pairs = [
            pair(self.tokenizer, asked, text, self.context, kind)
            for text in arguments.texts("texts", texts)
        ]
        return self._head(self._vectors(pairs, progress))

    def _prompt(self, name: str | None, prompt: str | None) -> str:
        if prompt is not None:
            if name is not None:
                raise HalfbyteError("prompt_name: prompt is given too: expected one of the two")
            return arguments.text("prompt", prompt)
        if name is None:
            return self._settings.prompt
        if arguments.text("prompt_name", name) not in self.prompts:
            known = (
                f"one of {[*self.prompts]}" if self.prompts else "none, the model has no prompts"
            )
            raise HalfbyteError(f"prompt_name {name!r}: expected {known}")
        return self.prompts[name]

    # ---- runs ------------------------------------------------------------------------------------

    def _vectors(self, texts: Sequence[Text], progress: Progress | None) -> F32Array:
        """Pooled vectors [texts, width of the model]."""
        self.file.check()
        self.cut = sum(text.cut for text in texts)
        vectors = np.empty((len(texts), self._hidden), np.float32)
        done = 0
        for batch in batches(texts, self.context):
            with self._turns.whole():
                run = self._read if "position" in self.program.sizes else self._encode
                vectors[done : done + len(batch)] = run(batch)
            done += len(batch)
            if progress is not None:
                progress(done)
        if not np.isfinite(vectors).all():
            self.file.check()
            raise HalfbyteError(f"{self.path}: expected finite vectors, found others")
        return vectors

    def _encode(self, texts: Sequence[Text]) -> F32Array:
        """Vectors of texts that an encoder reads at once."""
        sizes = [len(text.ids) for text in texts]
        blocks = ops.text_blocks(sizes)
        inputs: dict[str, Any] = {
            "ids": [i for text in texts for i in text.ids],
            "places": [place for size in sizes for place in range(size)],
            "types": [kind for text in texts for kind in text.types],
            "blocks": blocks,
        }
        for name, buffer in self.program.inputs.items():
            self.executable.array(buffer)[: len(inputs[name])] = inputs[name]
        self.executable.run({"n": sum(sizes), "b": len(blocks)})
        hidden: F32Array = np.asarray(self.executable.array(self.program.outputs["hidden"]))
        ends = np.cumsum(sizes).tolist()
        spans = zip([0, *ends], ends, strict=False)
        return np.stack([self._pooled(hidden[start:end]) for start, end in spans])

    def _pooled(self, hidden: F32Array) -> F32Array:
        if self._pools is Pooling.MEAN:
            mean: F32Array = hidden.mean(axis=0)
            return mean
        token: F32Array = hidden[-1 if self._pools is Pooling.LAST else 0]
        return token

    def _read(self, texts: Sequence[Text]) -> F32Array:
        """Vectors of the last tokens of texts that a language model reads one after the other."""
        rows = []
        ids = self.executable.array(self.program.inputs["ids"])
        hidden = self.executable.array(self.program.outputs["hidden"])
        step = self.program.sizes["n"].maximum
        for text in texts:
            for first in range(0, len(text.ids), step):
                part = text.ids[first : first + step]
                ids[: len(part)] = part
                self.executable.run({"n": len(part), "position": first, "rows": 1})
            rows.append(np.array(hidden[0]))
        return np.stack(rows)

    def close(self) -> None:
        """Stop threads, free memory and unmap the file."""
        self._turns.close()
        self.executable.close()
        self.file.close()

    def __enter__(self) -> TextEncoder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
