"""Tokens in, logits out: a model's program, its memory, and the tokens in its context."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends import open_program
from halfbyte.core.buffer import Kind
from halfbyte.core.profiling import Profile
from halfbyte.core.program import ADAPTERS, SKIPPED, Program
from halfbyte.core.turns import Turn, Turns
from halfbyte.download.threads import remember
from halfbyte.errors import ArgumentTypeError, HalfbyteError
from halfbyte.formats.mapped import is_mapped
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.sampling import log_softmax
from halfbyte.text.tokenizers import Tokenizer
from halfbyte.weights import F32Array, Tensor

_CHECK_SECONDS = 0.01  # between checks of mapped files while a text is generated
_SCANNED = 1 << 20  # weights that are decoded at once in search of one that is not finite


@dataclass
class _Shared:
    """What models that share a context know of it, beside the tokens."""

    text: object = None  # identifies the text that the tokens belong to
    scales: Mapping[str, float] = field(default_factory=dict)  # with which they were read


class TokenModel:
    """A model with one context: tokens go in, logits come out.

    Any number of threads may use it; see :meth:`turn` and :meth:`exclusive`.

    Attributes
    ----------
    file : ModelFile
        Metadata and tensors, as they were read.
    weights : mapping of str to Tensor
        The tensors as they are used: packed, copied or as in the file.
    notes : list of str
        Metadata that was ignored, and what is not exact.
    tokenizer : Tokenizer
        Text <-> token ids.
    program : Program
        Runs for every batch of tokens.
    tokens : list of int
        The tokens in the context.
    room : float
        Bytes of the memory budget that the plan leaves; infinite without a budget.
    scales : mapping of str to float
        How much of each adapter is used, by name.
    """

    def __init__(
        self,
        file: ModelFile,
        tokenizer: Tokenizer,
        program: Program,
        backend: str,
        threads: int,
        room: float = math.inf,
    ) -> None:
        self.file, self.tokenizer, self.program, self.room = file, tokenizer, program, room
        self.weights, self.notes = _weights(file, program), [*file.notes, *program.notes]
        self.executable = open_program(program, backend, threads)
        remember(self.executable)
        self._ids = self.executable.array(program.inputs["ids"])
        self._logits: F32Array = self.executable.array(program.outputs["logits"])
        self._sizes = {name: size.maximum for name, size in program.sizes.items()}
        parts = ((name, name.partition(SKIPPED)) for name in program.sizes)
        # sizes of adapters, the sizes that they are where an adapter is used, and its number
        self._skipped = [(name, size, int(n)) for name, (size, skipped, n) in parts if skipped]
        self.tokens: list[int] = []
        self.scales: Mapping[str, float] = {}
        self._shared = _Shared()
        self._original = True
        self._states = [b for b in program.buffers if b.kind is Kind.STATE]
        closed = f"{file.path}: the model is closed"
        self._turns = Turns(lambda: HalfbyteError(closed))
        weights = (self.executable.array(b) for b in program.buffers if b.kind is Kind.WEIGHT)
        self._maps = file.mapped if any(map(is_mapped, weights)) else []
        self._checked = 0.0  # when the files were checked
        self.profile: Profile | None = None  # if set, every run adds to it

    @property
    def path(self) -> Path:
        """The file this model was loaded from."""
        return self.file.path

    @property
    def text(self) -> object:
        """Identifies the text that the tokens belong to."""
        return self._shared.text

    @text.setter
    def text(self, text: object) -> None:
        self._shared.text = text

    @property
    def context(self) -> int:
        """Tokens that the context holds."""
        return self._sizes["position"]

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return int(self._logits.shape[1])

    @property
    def position(self) -> int:
        """Tokens in the context."""
        return len(self.tokens)

    def turn(self) -> Turn:
        """A turn to use the context, for a text of several steps."""
        return Turn(self._turns)

    def exclusive(self) -> AbstractContextManager[object]:
        """``with model.exclusive():`` keeps other threads from the context.

        Use it around calls that belong together, such as :meth:`rewind` and :meth:`feed`; each
        method does so for itself.
        """
        return self._turns.whole()

    def reset(self) -> None:
        """Forget the context."""
        self.rewind(())

    def rewind(self, ids: Sequence[int]) -> int:
        """Begin a text, keeping the tokens that it has in common with the context.

        Logits do not depend on how tokens arrive, so this changes nothing but the time. If layers
        keep a state, tokens are kept only if the text continues all of them. None are kept that
        were read with other scales of adapters.

        Returns
        -------
        int
            How many of the text's first tokens are kept; never the last one, whose logits are
            needed. The caller feeds the others.
        """
        limit = max(len(ids) - 1, 0)
        with self.exclusive():
            pairs = enumerate(zip(self.tokens, ids[:limit], strict=False))
            kept = next((i for i, (old, new) in pairs if old != new), min(len(self.tokens), limit))
            self.forget(kept if self.scales == self._shared.scales else 0)
            self.text, self._checked = None, 0.0
            return self.position

    def forget(self, first: int) -> None:
        """Remove the tokens from `first` on from the context.

        A state (:class:`halfbyte.core.buffer.Kind`) cannot go back: if layers keep one, all tokens
        are removed unless there is none to remove.
        """
        if self._states and first < len(self.tokens):
            first = 0
        del self.tokens[first:]

    def feed(self, ids: Sequence[int] | npt.NDArray[np.integer[Any]], rows: int = 1) -> F32Array:
        """Append tokens to the context.

        Parameters
        ----------
        ids : sequence of int
            Token ids, at least one.
        rows : int
            Number of last tokens whose logits to return; 0 saves their time.

        Returns
        -------
        float32 [rows, vocabulary]
            Logits of the token after each of them. A single row is a view, which the next call
            overwrites, from any thread; see :meth:`exclusive`.
        """
        with self.exclusive():
            return self._feed(ids, rows)

    def _feed(self, ids: Sequence[int] | npt.NDArray[np.integer[Any]], rows: int) -> F32Array:
        """`feed` for a caller that has the turn."""
        tokens = np.asarray(ids, np.int32)
        self._check(tokens, rows)
        self._set_scales()
        if self._maps:
            self._check_files(len(tokens))
        first = len(tokens) - rows  # the first token whose logits are returned
        out = None if rows == 1 else np.empty((rows, self.vocabulary), np.float32)
        done = 0
        while done < len(tokens):
            count = min(self._sizes["n"], len(tokens) - done)
            count = min(count, max(first - done, 0) + self._sizes["rows"])
            wanted = max(0, done + count - max(first, done))
            self._ids[:count] = tokens[done : done + count]
            self._run(self.registers(count, self.position, wanted))
            self.tokens += tokens[done : done + count].tolist()
            done += count
            if out is not None and wanted:
                out[done - wanted - first : done - first] = np.asarray(self._logits[:wanted])
        logits = np.asarray(self._logits[:1]) if out is None else out
        with np.errstate(all="ignore"):
            total = float(logits.sum())  # not finite where a logit is not
        if not math.isfinite(total):
            self._explain(logits)
        return logits

    def _set_scales(self) -> None:
        """Use the adapters as `scales` say."""
        if self.scales == self._shared.scales:
            return
        if self.tokens:
            raise HalfbyteError(
                f"{self.path}: the context holds {self.position} tokens that were read with "
                f"adapters {self._shared.scales}, expected {dict(self.scales)}: rewind it first"
            )
        array = self.executable.array(self.program.inputs[ADAPTERS])
        scales = np.array([*self.scales.values()], np.float32)
        array[...] = np.repeat(scales[:, None], array.shape[1], axis=1)
        self._shared.scales = dict(self.scales)

    def _check_files(self, tokens: int) -> None:
        """Raise `FormatError` if a file that weights are read from was changed in place."""
        now = time.monotonic()
        if tokens > 1 or now - self._checked > _CHECK_SECONDS:
            self._checked = now
            for pages in self._maps:
                pages.check()

    def _explain(self, logits: F32Array) -> None:
        """Raise if logits are not finite, naming the tensor that is the cause if there is one."""
        if np.isfinite(logits).all():
            return
        self.file.check()
        for tensor in self.weights.values():
            rows, step = tensor.rows, max(1, _SCANNED // tensor.columns)
            for first in range(0, len(rows), step):
                values = tensor.format.decode(np.asarray(rows[first : first + step]))
                self.file.check_values(tensor, values, first)
        for buffer in self._states:
            state = self.executable.array(buffer)
            if not np.isfinite(state).all():
                raise HalfbyteError(
                    f"{self.path}: state '{buffer.name}' after {self.position} tokens: expected "
                    f"finite numbers, found {state[~np.isfinite(state)][0]}"
                )
        raise HalfbyteError(f"{self.path}: expected finite logits, found {logits.max()}")

    def registers(self, n: int, position: int, rows: int) -> dict[str, int]:
        """The sizes of a run of the program; those of adapters that are not used are 0."""
        registers = {"n": n, "position": position, "rows": rows}
        if self._skipped:
            scales = [*self.scales.values()]
            for name, size, adapter in self._skipped:
                registers[name] = registers[size] if scales[adapter] else 0
        return registers

    def _run(self, registers: dict[str, int]) -> None:
        try:
            if self.profile is None:
                self.executable.run(registers)
            else:
                seconds = self.executable.profile(registers)
                self.profile.add(self.program, registers, seconds)
        except BaseException:  # a state may have taken some of the tokens, or none
            if self._states:
                self.tokens.clear()
            raise

    def _check(self, tokens: npt.NDArray[np.int32], rows: int) -> None:
        if tokens.ndim != 1 or not len(tokens) or not 0 <= rows <= len(tokens):
            raise HalfbyteError(
                f"{len(tokens)} tokens and {rows} rows of logits: expected 1 or more tokens, and "
                "at most as many rows"
            )
        if self.position + len(tokens) > self.context:
            raise HalfbyteError(
                f"{self.path}: {len(tokens)} tokens after {self.position} do not fit the context "
                f"of {self.context}"
            )
        wrong = tokens[(tokens < 0) | (tokens >= self.vocabulary)]
        if len(wrong):
            raise HalfbyteError(
                f"{self.path}: token {wrong[0]}: expected 0 to {self.vocabulary - 1}"
            )

    def logits(self, ids: Sequence[int]) -> F32Array:
        """Logits [len(ids), vocabulary] of a text that starts with these tokens."""
        with self.exclusive():
            self.reset()
            logits = self.feed(ids, rows=len(ids))
            return logits.copy() if len(ids) == 1 else logits

    def token_losses(self, ids: Sequence[int]) -> npt.NDArray[np.float64]:
        """-log p (in nats) of each token after the first, given those before it in its window.

        A text longer than the context is cut into windows. Each starts with an empty context and
        `ids[0]` (the beginning-of-text token).
        """
        losses: list[float] = []
        rows = self._sizes["rows"]  # of logits that the plan has memory for
        for start in range(1, len(ids), self.context):
            targets = ids[start : start + self.context]
            inputs = [ids[0], *targets[:-1]]
            with self.exclusive():
                self.reset()
                for at in range(0, len(inputs), rows):
                    part = inputs[at : at + rows]
                    logits = self.feed(part, len(part))
                    for row, token in zip(logits, targets[at:], strict=False):
                        losses.append(-log_softmax(row)[token])
        return np.array(losses, np.float64)

    def close(self) -> None:
        """Stop threads, free memory and unmap the file.

        If another thread is in a step, wait for it to end; its text ends with an error. Closing
        what :meth:`LanguageModel.adapter` returned does nothing.
        """
        if not self._original:
            return
        self._turns.close()
        self.executable.close()
        self.file.close()
        self._ids, self._logits = self._ids[:0].copy(), np.empty((0, self.vocabulary), np.float32)
        weights = [b for b in self.program.buffers if b.kind is Kind.WEIGHT]
        self.program = self.program.replaced({b: replace(b, value=None) for b in weights})
        self.executable.program, self.weights, self._maps = self.program, {}, []

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"{self.path}: a model cannot be pickled or copied: it holds memory of threads and "
            "kernels; load it from its file in each process"
        )


def _weights(file: ModelFile, program: Program) -> Mapping[str, Tensor]:
    """The file's tensors, with the program's own in place of those that it changed."""
    used = program.tensors
    split = {t.whole.name for t in used.values() if t.whole is not None}
    return {name: t for name, t in file.tensors.items() if name not in split} | used
