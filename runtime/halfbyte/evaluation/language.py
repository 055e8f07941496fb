"""The workloads `validate`, `trace` and `run` on language models."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.chrome_trace import chrome_trace
from halfbyte.core.profile import Profile
from halfbyte.core.program import Kind
from halfbyte.errors import HalfbyteError
from halfbyte.evaluation import transformers_reference
from halfbyte.evaluation.comparison import compare
from halfbyte.evaluation.dump import Dump
from halfbyte.evaluation.evaluation import Evaluation, Result
from halfbyte.evaluation.graphs import run_result, summary
from halfbyte.evaluation.lockstep import Lockstep
from halfbyte.evaluation.rows import comparison_rows
from halfbyte.evaluation.tolerances import OUTPUT, OUTPUT_F16, OUTPUT_INT8
from halfbyte.evaluation.tracing import FirstDifferenceError, InstructionTrace
from halfbyte.formats.npz import read_npz
from halfbyte.outputs import write_text
from halfbyte.text.loading import load
from halfbyte.text.model import LanguageModel

LOGITS = "logits"


def _load(e: Evaluation, backend: str, threads: int) -> LanguageModel:
    e.progress(f"loading {e.model} ({backend}, {threads} threads)")
    return load(
        e.model, tokenizer=e.tokenizer, context=e.context, cache=e.cache, backend=backend,
        threads=threads, passes=e.passes,
    )  # fmt: skip


def _ids(e: Evaluation, model: LanguageModel) -> npt.NDArray[np.int32]:
    """The tokens that a model reads: the file's, or the prompt's."""
    if e.input is None:
        ids = model.tokenizer.encode(e.prompt) or [model.tokenizer.bos]
        return np.array(ids, np.int32)
    found = read_npz(e.input)
    if list(found) != ["ids"] or found["ids"].ndim != 1 or found["ids"].dtype.kind not in "iu":
        shapes = {name: f"{v.dtype}{list(v.shape)}" for name, v in found.items()}
        raise HalfbyteError(f"{e.input}: expected integers 'ids' [tokens], found {shapes}")
    return found["ids"].astype(np.int32)


def _programs(dump: Dump, e: Evaluation, model: LanguageModel) -> None:
    """Write the program as captured and after passes."""
    if not dump:
        return
    from halfbyte.formats import open_model
    from halfbyte.text.planning import Settings, capture_model

    captured = capture_model(
        open_model(e.model, e.tokenizer), Settings(context=e.context, cache=e.cache)
    )
    dump.text("program-before", captured.dump())
    dump.text("program-after", model.program.dump())


def validate(e: Evaluation) -> Result:
    """Logits of every token beside those of a reference, within tolerances."""
    reference = e.reference_of("numpy", "torch")
    dump, found = Dump(e.dump), []
    for threads in e.thread_counts:
        with _load(e, e.backend, threads) as model:
            ids = _ids(e, model)
            found.append(model.logits(ids.tolist()))
            backend = model.executable.backend
    _programs(dump, e, model)
    wanted = _reference(e, reference, ids)
    tolerance = e.tolerance(_output_kind(model), backend, wanted)
    rows = [
        (LOGITS, threads, compare(logits, wanted, tolerance))
        for threads, logits in zip(e.thread_counts, found, strict=True)
    ]
    for folder, values in (("inputs", ids), ("values", found[-1]), ("reference", wanted)):
        dump.value(folder, "ids" if folder == "inputs" else LOGITS, values)
    agree = float(np.mean(found[-1].argmax(axis=1) == wanted.argmax(axis=1)))
    lines = [
        f"{e.model.name}: {backend} beside {reference}; {len(ids)} tokens",
        *comparison_rows(rows),
        f"the likeliest token is the same for {agree:.0%} of {len(ids)} positions",
    ]
    data = {
        "reference": reference, "backend": backend, "tokens": len(ids), "same_token": agree,
        "outputs": [{"name": n, "threads": t, **c.as_json()} for n, t, c in rows],
    }  # fmt: skip
    worst = max(c.max_rel for _, _, c in rows)
    passed = all(c.passed for _, _, c in rows)
    return Result(e, passed, f"max rel error {worst:.1e}", lines, data)


def _output_kind(model: LanguageModel) -> str:
    """What stands for the operator of its logits in tolerances' rules."""
    steps = model.program.instructions
    caches = {b.dtype for i in steps for b in i.outputs if b.root.kind is Kind.STATE}
    if "q8_0" in caches or any("Quantize" in i.operator.onnx for i in steps):
        return OUTPUT_INT8
    return OUTPUT_F16 if "f16" in caches else OUTPUT


def _reference(
    e: Evaluation, reference: str, ids: npt.NDArray[np.int32]
) -> npt.NDArray[np.float32]:
    if reference == "torch":
        e.progress("running torch")
        return transformers_reference.logits(e.model, ids)
    with _load(e, "numpy", 1) as model:
        return model.logits(ids.tolist())


def trace(e: Evaluation) -> Result:
    """Every instruction's results beside NumPy's."""
    e.reference_of("numpy")
    forced = e.forced is not False
    threads = e.one_thread_count
    dump = Dump(e.dump)
    with _load(e, e.backend, threads) as model:
        ids = _ids(e, model)
        rule = "" if forced else _output_kind(model)  # errors add up
        trace = InstructionTrace(e, dump, model.executable.backend, rule)
        _programs(dump, e, model)
        dump.values("inputs", {"ids": ids})
        e.progress(f"running {e.backend} and numpy")
        both = Lockstep(model.program, e.backend, threads, trace.visit, forced=forced)
        with contextlib.suppress(FirstDifferenceError):
            _feed(model, both, ids)
        both.close()
    how = "with numpy's inputs" if forced else "running freely"
    head = f"{e.model.name}: instructions of {both.backend} beside numpy, {how}; {len(ids)} tokens"
    return trace.result(head, {"reference": "numpy", "backend": both.backend, "forced": forced})


def _feed(model: LanguageModel, both: Lockstep, ids: npt.NDArray[np.int32]) -> None:
    """Run all tokens, as many at once as the program takes, with the last one's logits."""
    program = model.program
    if len(ids) > model.context:
        raise HalfbyteError(
            f"{model.path}: {len(ids)} tokens do not fit the context of {model.context}"
        )
    most = program.sizes["n"].maximum
    for start in range(0, len(ids), most):
        part = ids[start : start + most]
        both.array(program.inputs["ids"])[: len(part)] = part
        last = int(start + len(part) == len(ids))
        both.run({"n": len(part), "position": start, "rows": last})


def run(e: Evaluation) -> Result:
    """Logits' summary and a profile; the first run, which touches the weights, is not in it."""
    e.reference_of("none")
    threads, dump = e.one_thread_count, Dump(e.dump)
    profile = Profile(keep_events=e.trace is not None)
    with _load(e, e.backend, threads) as model:
        ids = _ids(e, model)
        _programs(dump, e, model)
        model.logits(ids.tolist())
        model.profile = profile
        for number in range(e.repetitions):
            e.progress(f"run {number + 1} of {e.repetitions}")
            start = time.perf_counter()
            found = model.logits(ids.tolist())
            profile.add_span("logits", start)
        backend = model.executable.backend
    dump.values("inputs", {"ids": ids})
    dump.values("values", {LOGITS: found})
    if e.trace is not None:
        events = chrome_trace(profile, backend=backend, threads=threads)
        write_text(e.trace, json.dumps(events))
    summaries: dict[str, dict[str, Any]] = {LOGITS: summary(found)}
    return run_result(e, backend, threads, f"{len(ids)} tokens", summaries, profile)
