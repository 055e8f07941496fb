"""Weights read from storage as they are needed: the same results, in the planned memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.sampled import sampled
from tests.support.shapes import zeros
from tests.support.tools import load_tool
from tests.text.architectures import models

import halfbyte
from halfbyte.cli import main
from halfbyte.core.buffer import Kind
from halfbyte.core.passes.stream_weights import streamed_bytes
from halfbyte.errors import FormatError, MemoryBudgetError, UnsupportedError
from halfbyte.formats.mapped import is_mapped
from halfbyte.quantize import quantize_file
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.opening import open_model
from halfbyte.text.planning import LEVELS, Settings, plan, plan_within

IDS = [1, *range(300, 340)]


@pytest.fixture
def small_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lots of a few rows: every matrix is sliced, every buffer of the arena is shared."""
    module = sys.modules["halfbyte.core.passes.stream_weights"]
    monkeypatch.setattr(module, "LOT_BYTES", 5000)


def equal_to_mapped(path: Path, ids: list[int] = IDS, tolerance: float = 0, **options: Any) -> None:
    with (
        halfbyte.load(path, weights="mapped", **options) as mapped,
        halfbyte.load(path, weights="streamed", **options) as streamed,
    ):
        assert any(b.kind is Kind.WINDOW for b in streamed.program.buffers)
        for part in (ids[:-3], *([i] for i in ids[-3:])):  # a prompt, then token by token
            rows = min(len(part), 5)
            result, expected = streamed.feed(part, rows=rows), mapped.feed(part, rows=rows)
            np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("small_lots")
@pytest.mark.parametrize("kind", ["bf16", "fp16", "int4", "int8", "Q5_1"])
def test_equal_to_mapped_weights(kind: str, storyteller: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    quantize_file(storyteller, kind, path)
    equal_to_mapped(path, threads=2)
    equal_to_mapped(path, threads=1, activations="float", batch=7)
    # Some processors' BLAS rounds products of a part of a matrix in another way.
    equal_to_mapped(path, backend="numpy", ids=IDS[:6], tolerance=1e-4)


@pytest.mark.usefixtures("small_lots")
@pytest.mark.parametrize("name", sampled(models.CONFIGS, 3))
def test_every_architecture(name: str, tmp_path: Path) -> None:
    equal_to_mapped(models.write(tmp_path / "m.gguf", name), ids=models.ids(name))


@pytest.mark.usefixtures("small_lots")
@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2_moe", "mamba2", "gemma3", "phi3"])
@pytest.mark.parametrize("share", [0.2, 0.7])
def test_what_fits_is_held(name: str, share: float, tmp_path: Path) -> None:
    """With the same results: to the rows of one group."""
    path = models.write(tmp_path / "m.gguf", name)
    file = open_model(path)
    least = plan(file, Settings(weights="streamed"))
    matrices = sum(b.nbytes for b in least.program.buffers if b.kind is Kind.WINDOW)
    budget = least.total + int(share * matrices)
    ids = models.ids(name)
    with (
        halfbyte.load(path, weights="mapped") as mapped,
        halfbyte.load(path, memory_budget=budget, threads=2) as model,
    ):
        np.testing.assert_array_equal(model.logits(ids), mapped.logits(ids))
        streamed = sum(b.nbytes for b in model.program.buffers if b.kind is Kind.WINDOW)
    assert 0 < streamed <= 1.1 * (1 - share) * matrices


@pytest.mark.parametrize("kind", ["fp16", "int4", "Q6_K"])
def test_the_more_memory_the_fewer_bytes_are_read(
    kind: str, storyteller: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    quantize_file(storyteller, kind, path)
    file = open_model(path)
    least, most = (plan(file, Settings(weights=w)).total for w in ("streamed", "packed"))
    plans = [
        plan_within(file, Settings(), budget) for budget in np.linspace(least, most, 9).astype(int)
    ]
    read = [streamed_bytes(one.program) for one in plans]
    assert read == sorted(read, reverse=True)
    assert len(set(read)) == len(read), read
    assert read[-1] == 0


def test_a_run_that_broke_off_leaves_the_next_one_right(storyteller: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    quantize_file(storyteller, "int8", path)
    content = path.read_bytes()
    with halfbyte.load(path, weights="streamed") as model:
        before = model.feed(IDS).copy()
        os.truncate(path, len(content) // 2)
        with pytest.raises(FormatError, match=r"m.gguf: tensor 'blk.*': expected bytes up to off"):
            model.logits(IDS)
        with path.open("r+b") as file:  # the same file, whole again
            file.write(content)
        np.testing.assert_array_equal(model.logits(IDS)[-1:], before)


def test_a_file_of_the_same_name_is_not_read(storyteller: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    quantize_file(storyteller, "int8", path)
    with halfbyte.load(path, weights="streamed") as model:
        before = model.feed(IDS).copy()
        quantize_file(storyteller, "int4", path)
        np.testing.assert_array_equal(model.logits(IDS)[-1:], before)
    file = open_model(path)
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(FormatError, match=r"m.gguf: expected \d+ bytes as before, found \d+"):
        plan(file, Settings(weights="streamed"))


def test_bytes_in_memory_are_not_streamed(storyteller: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    quantize_file(storyteller, "int8", path)
    with pytest.raises(UnsupportedError, match="streamed': expected a file on storage"):
        halfbyte.load_bytes(path.read_bytes(), weights="streamed")
    budget = plan(open_model(path), Settings(weights="packed")).total - 1
    with pytest.raises(MemoryBudgetError, match="KV cache"):
        halfbyte.load_bytes(path.read_bytes(), memory_budget=budget)


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_a_billion_weights_need_a_twentieth(kind: str, repository: Path) -> None:
    file = zeros(repository, "llama-1b", kind)
    eager = plan(file, Settings(context=512, weights="packed"))
    lazy = plan(file, Settings(context=512, weights="streamed"))
    vectors = sum(t.nbytes for t in file.tensors.values() if len(t.shape) == 1)
    held = lazy.memory["weights (streamed)"] + vectors
    assert lazy.memory["weights (mapped)"] == lazy.memory["weights (packed)"] == 0
    assert 20 * held <= eager.memory["weights (packed)"] + eager.memory["weights (mapped)"]


def test_levels_need_less_and_less(repository: Path) -> None:
    file = zeros(repository, "smollm2-135m", "Q4_0")
    totals = []
    for name in ("baseline", "basic", "aggressive"):
        memory = plan(file, LEVELS[name]).memory
        totals.append(sum(memory.values()) - memory["weights (mapped)"])
    assert totals == sorted(totals, reverse=True)
    assert plan(file, LEVELS["aggressive"]).settings.context == 2048


# Touches all planned memory: the whole context, logits of many rows. It also generates texts and
# holds a conversation, with everything that is imported for them.
FILL = """
import json, sys
held = b"x" * int(sys.argv[4])  # other memory of a process differs a little each time
import halfbyte
from halfbyte.text import footprint
from halfbyte.errors import MemoryBudgetError
from halfbyte.text.opening import open_model
from halfbyte.formats.mapped import is_mapped
from halfbyte.text.planning import Settings, plan
path, way, use = sys.argv[1:4]
settings = {"context": 256, "weights": way}
if way == "part":  # half of the weights
    both = (Settings(256, weights=w) for w in ("packed", "streamed"))
    totals = [plan(open_model(path), one).total for one in both]
    least, settings = sum(totals) // 2, {"context": 256}
else:
    least = plan(open_model(path), Settings(**settings)).total
try:
    halfbyte.load(path, memory_budget=least - 1, **settings)
    refused = ""
except MemoryBudgetError as error:
    refused = str(error)
if use == "beams":
    from halfbyte.text.beam import beam_search, beams_bytes
    from halfbyte.text.sampling import Sampler
    with halfbyte.load(path, threads=2, memory_budget=least, **settings) as model:
        endless = Sampler(logit_bias=dict.fromkeys(model.tokenizer.stop_ids, float("-inf")))
        search = [[1, 2], endless, 8, 1.0, 60]
        needed = beams_bytes(model, 2, 8, 60)
        try:
            beam_search(model, *search)
        except MemoryBudgetError as error:
            refused = str(error)
    least += needed
    model = halfbyte.load(path, threads=2, memory_budget=least, **settings)
    assert max(len(beam.ids) for beam in beam_search(model, *search)) == 60
elif use == "all":
    import halfbyte.cli
    model = halfbyte.load(path, threads=2, memory_budget=least, **settings)
    model.feed([1 + i % 100 for i in range(model.context)], rows=2)
    model.token_losses([1 + i % 100 for i in range(model.context)])
    model.generate("Once upon a time", max_tokens=4, seed=1, top_p=0.9, repetition_penalty=1.1)
    if "tokenizer.chat_template" in model.file.metadata:
        model.chat([{"role": "user", "content": "hello"}], max_tokens=4)
    windows = any(b.kind == "window" for b in model.program.buffers)
    assert windows == (way != "packed")
print(json.dumps([refused, least, footprint.peak_bytes()]))
"""


def least_budget(path: Path, way: str, use: str, held: int = 0) -> tuple[str, int, int]:
    """The message that refuses less, the least budget, and the peak when it is used up."""
    command = [sys.executable, "-c", FILL, str(path), way, use, str(held)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    refused, least, peak = json.loads(done.stdout)
    return refused, least, peak


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A folder of models: a larger one, one of floats, a tiny one that holds conversations."""
    folder = tmp_path_factory.mktemp("budget")
    make = load_tool(repository, "make_model").make_model
    make(folder / "large.gguf", "smollm2-135m", "Q4_0")
    make(folder / "floats.gguf", "small", "F32")
    make(folder / "tiny.gguf", "tiny", "Q8_0")
    file = open_model(folder / "tiny.gguf")
    template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    metadata = {**file.metadata, "tokenizer.chat_template": template}
    write_gguf(folder / "talks.gguf", metadata, file.tensors.values())
    return folder


@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param("large", "packed", marks=pytest.mark.long),
        pytest.param("large", "streamed", marks=pytest.mark.long),
        ("floats", "streamed"),
        ("talks", "packed"),
        ("talks", "streamed"),
    ],
)
def test_a_budget_is_kept(name: str, way: str, shapes: Path) -> None:
    """The least budget that is accepted is never exceeded; a little less is refused."""
    refused, least, peak = least_budget(shapes / f"{name}.gguf", way, "all")
    assert "expected to need at most" in refused
    assert "interpreter" in refused
    assert peak <= least, (peak, least)


@pytest.mark.parametrize("name", ["large", "floats"])
def test_a_budget_for_half_of_the_weights_is_kept(name: str, shapes: Path) -> None:
    _, budget, peak = least_budget(shapes / f"{name}.gguf", "part", "all")
    assert peak <= budget, (peak, budget)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param("large", "packed", marks=pytest.mark.long),
        pytest.param("floats", "streamed", marks=pytest.mark.long),
        ("tiny", "packed"),
    ],
)
def test_beams_keep_to_a_budget(name: str, way: str, shapes: Path) -> None:
    """Refused if the model uses up the budget; otherwise they fit the memory that they announce."""
    refused, least, peak = least_budget(shapes / f"{name}.gguf", way, "beams")
    assert "8 beams of 60 tokens: expected to need at most 0.0 MB beside the model" in refused
    assert peak <= least, (peak, least)


def test_a_budget_has_the_same_answer_each_time(shapes: Path) -> None:
    answers = {
        least_budget(shapes / "tiny.gguf", "streamed", "plan", held)[:2]
        for held in (0, 1000, 100_000, 400_000, 1_000_000)
    }
    assert len(answers) == 1


@pytest.mark.parametrize("name", ["qwen2", "gpt2", "llama-tied-biases"])
def test_nothing_of_a_streamed_model_stays_mapped(name: str, tmp_path: Path) -> None:
    """Reading the page of a bias may bring megabytes around it into memory."""
    path = models.write(tmp_path / "m.gguf", name)
    with halfbyte.load(path, weights="streamed") as model:
        arrays = [b.value for b in model.program.buffers if isinstance(b.value, np.ndarray)]
        assert len(arrays) > 2
        assert not any(map(is_mapped, arrays))


def test_on_the_command_line(storyteller: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for more in (["--weights", "mapped"], ["--weights", "streamed"], ["--level", "extreme"]):
        assert main(["run", str(storyteller), "Once", "-n", "8", "--temp", "0", *more]) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    assert main(["run", str(storyteller), "Once", "--memory-budget", "8MB"]) == 2
    assert "expected to need at most 8.0 MB, found" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run", str(storyteller), "Once", "--memory-budget", "lots"])
    assert "expected a size such as 256MB" in capsys.readouterr().err
