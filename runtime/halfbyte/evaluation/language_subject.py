"""Language models as a subject of evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends import Executable
from halfbyte.core.buffer import Kind
from halfbyte.core.chrome_trace import chrome_trace
from halfbyte.core.profiling import Profile
from halfbyte.core.program import Program
from halfbyte.errors import HalfbyteError
from halfbyte.evaluation import transformers_reference
from halfbyte.evaluation.evaluation import Evaluation
from halfbyte.evaluation.series import Pair, Series
from halfbyte.evaluation.subject import ProfiledRuns, Subject, Values
from halfbyte.evaluation.tolerances import OUTPUT, OUTPUT_F16, OUTPUT_INT8
from halfbyte.formats.npz import read_npz
from halfbyte.text import bench
from halfbyte.text.loading import load
from halfbyte.text.model import LanguageModel

LOGITS = "logits"
_REFERENCES = {
    "validate": ("numpy", "torch"), "trace": ("numpy",), "bench": ("numpy", "none"),
    "run": ("none",),
}  # fmt: skip


class LanguageSubject(Subject):
    """A language model with the tokens that it reads; its output is all their logits.

    Attributes
    ----------
    ids : int32 [tokens]
        Known once the model was loaded with its tokenizer, as is the program.
    program : Program
    """

    unit = "tokens/s"
    program: Program

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__(evaluation)
        self.ids: npt.NDArray[np.int32] = np.empty(0, np.int32)

    @classmethod
    def references(cls, workload: str) -> tuple[str, ...]:
        """See `Subject`."""
        return _REFERENCES[workload]

    @property
    def inputs(self) -> str:
        """The number of tokens."""
        return f"{len(self.ids)} tokens" if len(self.ids) else ""

    @property
    def output_kind(self) -> str:
        """See `Subject`."""
        steps = self.program.instructions
        caches = {b.dtype for i in steps for b in i.outputs if b.root.kind is Kind.CACHE}
        if "q8_0" in caches or any("Quantize" in i.operator.onnx for i in steps):
            return OUTPUT_INT8
        return OUTPUT_F16 if "f16" in caches else OUTPUT

    def outputs(self, threads: int) -> Values:
        """See `Subject`."""
        with self._loaded(threads) as model:
            return {LOGITS: model.logits(self.ids.tolist())}

    def reference_outputs(self, reference: str) -> Values:
        """See `Subject`."""
        if reference == "torch":
            return {LOGITS: transformers_reference.logits(self.evaluation.model, self.ids)}
        with self._load("numpy", 1) as model:
            return {LOGITS: model.logits(self.ids.tolist())}

    def remarks(self, actual: Values, expected: Values) -> tuple[list[str], Mapping[str, Any]]:
        """For how many positions the likeliest token is the same."""
        count = len(self.ids)
        agree = float(np.mean(actual[LOGITS].argmax(axis=1) == expected[LOGITS].argmax(axis=1)))
        line = f"the likeliest token is the same for {agree:.0%} of {count} positions"
        return [line], {"tokens": count, "same_token": agree}

    @contextmanager
    def profiled(self, threads: int) -> Iterator[ProfiledRuns]:
        """See `Subject`."""
        profile = Profile(keep_events=self.evaluation.trace is not None)
        with self._loaded(threads) as model:
            ids = self.ids.tolist()
            model.logits(ids)
            model.profile = profile
            yield ProfiledRuns(
                run=lambda: {LOGITS: model.logits(ids)},
                profile=profile,
                span=LOGITS,
                events=lambda: chrome_trace(profile, backend=self.backend, threads=threads),
            )

    def step_through(self, opener: Callable[[Program], Executable]) -> None:
        """Run all tokens, as many at once as the program takes, with the last one's logits."""
        with self._loaded(self.evaluation.one_thread_count) as model:
            count, program = len(self.ids), model.program
            if count > model.context:
                raise HalfbyteError(
                    f"{model.path}: {count} tokens do not fit the context of {model.context}"
                )
            executable, step = opener(program), program.sizes["n"].maximum
            try:
                for start in range(0, count, step):
                    part = self.ids[start : start + step]
                    executable.array(program.inputs["ids"])[: len(part)] = part
                    last = int(start + len(part) == count)
                    executable.run({"n": len(part), "position": start, "rows": last})
            finally:
                executable.close()

    @contextmanager
    def pairs(self, reference: str) -> Iterator[list[Pair]]:
        """Prompts (pp) and generation (tg), as `halfbyte bench` measures them."""
        e = self.evaluation
        with ExitStack() as models:
            slow = None if reference == "none" else models.enter_context(self._load("numpy", 1))
            pairs: list[Pair] = []
            for threads in e.thread_counts:
                model = models.enter_context(self._load(e.backend, threads))
                others = repeat(None) if slow is None else self._tests(slow, reference, 1)
                pairs += zip(self._tests(model, e.backend, threads), others, strict=False)
            yield pairs

    def _tests(self, model: LanguageModel, engine: str, threads: int) -> Iterator[Series]:
        for kind, counts in (("pp", self.evaluation.prompts), ("tg", self.evaluation.decodes)):
            for count in counts:
                turn = bench.Test(model, kind, count).run
                yield Series(engine, f"{kind}{count}", threads, turn)

    def _load(self, backend: str, threads: int) -> LanguageModel:
        e = self.evaluation
        e.progress(f"loading {e.model} ({backend}, {threads} threads)")
        return load(
            e.model, tokenizer=e.tokenizer, context=e.context, cache=e.cache, backend=backend,
            threads=threads, passes=e.passes,
        )  # fmt: skip

    @contextmanager
    def _loaded(self, threads: int) -> Iterator[LanguageModel]:
        """The model on the backend; sets the tokens and the program."""
        with self._load(self.evaluation.backend, threads) as model:
            self.ids, self.program = self._read_ids(model), model.program
            self.backend = model.executable.backend
            self.dump.value("inputs", "ids", self.ids)
            self._dump_programs()
            self.evaluation.progress(f"running {self.backend}")
            yield model

    def _read_ids(self, model: LanguageModel) -> npt.NDArray[np.int32]:
        """The tokens of the input file, or of the prompt."""
        path = self.evaluation.input
        if path is None:
            tokens = model.tokenizer.encode(self.evaluation.prompt) or [model.tokenizer.bos]
            return np.array(tokens, np.int32)
        arrays = read_npz(path)
        ids = arrays.get("ids")
        if len(arrays) != 1 or ids is None or ids.ndim != 1 or ids.dtype.kind not in "iu":
            shapes = {name: f"{v.dtype}{list(v.shape)}" for name, v in arrays.items()}
            raise HalfbyteError(f"{path}: expected integers 'ids' [tokens], found {shapes}")
        return ids.astype(np.int32)

    def _dump_programs(self) -> None:
        """Write the program as captured and after passes."""
        if not self.dump:
            return
        from halfbyte.text.opening import open_model
        from halfbyte.text.planning import Settings, capture_model

        e = self.evaluation
        captured = capture_model(
            open_model(e.model, e.tokenizer), Settings(context=e.context, cache=e.cache)
        )
        self.dump.text("program-before", captured.dump())
        self.dump.text("program-after", self.program.dump())
