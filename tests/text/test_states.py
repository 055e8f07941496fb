"""Layers with a state: it goes forward only, whoever uses the context, and after any failure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.text.architectures import models

import halfbyte
from halfbyte.core.buffer import Kind
from halfbyte.errors import HalfbyteError
from halfbyte.text.describe import describe
from halfbyte.text.opening import open_model
from halfbyte.text.planning import Settings, plan
from halfbyte.text.sampling import log_softmax

NAMES = ["lfm2", "mamba2", "falcon_h1", "rwkv7"]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(name: str, tmp_path: Path) -> Path:
    return models.write(tmp_path / "model.gguf", name)


@pytest.fixture
def model(path: Path) -> Iterator[halfbyte.LanguageModel]:
    with halfbyte.load(path, batch=7) as model:
        yield model


@pytest.fixture
def fresh(path: Path, name: str) -> models.F32Array:
    with halfbyte.load(path) as model:
        return model.logits(models.ids(name))


def test_only_a_text_that_continues_all_tokens_is_reused(
    model: halfbyte.LanguageModel, name: str, fresh: models.F32Array
) -> None:
    ids = models.ids(name)
    model.feed(ids[:20])
    assert model.rewind(ids[:30]) == 20
    np.testing.assert_array_equal(model.feed(ids[20:30])[0], fresh[29])
    assert model.rewind(ids[:30]) == 0  # the last token's logits are needed again
    np.testing.assert_array_equal(model.feed(ids[:30])[0], fresh[29])
    assert model.rewind(ids[:10]) == 0
    np.testing.assert_array_equal(model.feed(ids[:10])[0], fresh[9])
    assert model.rewind([*ids[:5], 3, *ids[5:]]) == 0
    assert model.rewind(()) == 0


def test_texts_that_take_turns_are_those_of_a_text_by_itself(model: halfbyte.LanguageModel) -> None:
    alone = [model.generate(p, max_tokens=8, temperature=0) for p in ("abc", "b")]
    both = [model.generation(p, max_tokens=8, temperature=0) for p in ("abc", "b")]
    for pieces in zip(*both, strict=False):
        assert len(pieces) == 2
    for one in both:
        list(one)
    assert [one.text for one in both] == alone
    going_on = model.generation([*both[1].prompt_ids, *both[1].ids, 5, 6], max_tokens=2)
    list(going_on)
    assert going_on.reused == len(both[1].prompt_ids) + len(both[1].ids) - 1


def test_beams_keep_states_of_their_own(model: halfbyte.LanguageModel) -> None:
    beams = model.beam_search("abc", num_beams=3, max_tokens=5)
    assert model.tokens == []  # the state is of some beam
    prompt = model.tokenizer.encode("abc")
    assert len(beams) == 3
    for beam in beams:
        logits = model.logits([*prompt, *beam.ids])[len(prompt) - 1 :]
        total = sum(log_softmax(row)[t] for row, t in zip(logits, beam.ids, strict=False))
        if len(beam.ids) < 5:
            total += log_softmax(logits[len(beam.ids)])[model.tokenizer.eos_id]
        length = len(beam.ids) + (len(beam.ids) < 5)
        assert beam.score == pytest.approx(total / length, rel=1e-5)


def test_a_run_that_is_stopped_half_way_is_forgotten(
    model: halfbyte.LanguageModel, name: str, fresh: models.F32Array,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    ids, run = models.ids(name), model.executable.run

    def stopped(registers: dict[str, int]) -> None:
        run(registers)
        raise KeyboardInterrupt

    model.feed(ids[:9])
    monkeypatch.setattr(model.executable, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        model.feed(ids[9:12])
    monkeypatch.undo()
    assert model.rewind(ids[:12]) == 0
    np.testing.assert_array_equal(model.feed(ids[:12])[0], fresh[11])


def test_a_state_that_is_not_finite_is_named(
    model: halfbyte.LanguageModel, name: str, fresh: models.F32Array
) -> None:
    ids = models.ids(name)
    model.feed(ids[:4])
    states = [b for b in model.program.buffers if b.kind is Kind.STATE]
    state = max(states, key=lambda b: b.nbytes)  # others may hold the last token only
    model.executable.array(state)[...] = np.inf
    with pytest.raises(HalfbyteError, match=rf"state '{state.name}' after 5 tokens: expected fin"):
        model.feed(ids[4:5])
    np.testing.assert_array_equal(model.logits(ids[:5])[4], fresh[4])


def test_memory_is_planned_by_kind(path: Path) -> None:
    """A state does not grow with the context, and only layers with attention have a cache."""
    file = open_model(path)
    short, long = (plan(file, Settings(context=c)) for c in (16, 48))
    assert long.memory["states"] == short.memory["states"] > 0
    program = long.program
    states = [b for b in program.buffers if b.kind is Kind.STATE]
    assert long.memory["states"] == sum(b.nbytes for b in states)
    cached = {b.name.rpartition(".")[0] for b in program.buffers if b.kind is Kind.CACHE}
    of = f"{file.metadata['general.architecture']}."
    counts: Any = file.metadata.get(f"{of}attention.head_count_kv", 0)
    each = np.broadcast_to(counts, file.metadata[f"{of}block_count"])  # type: ignore[arg-type]
    assert cached == {f"blk.{i}" for i, n in enumerate(each) if n}
    assert long.memory["KV cache"] == 3 * short.memory["KV cache"]
    assert "\n  states " in describe(path)
