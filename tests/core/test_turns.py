"""Many threads and tasks on one model or session get the results of sequential calls."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.onnx.session.models import FLOAT, HALFBYTE, added, model, node, session, tensor, weight
from tests.support import aio
from tests.text.chat.models import sentencepiece

import halfbyte
from halfbyte.core import turns
from halfbyte.core.backends.native import Kernels
from halfbyte.core.turns import Turns
from halfbyte.errors import HalfbyteError
from halfbyte.text.chat import Chat

PROMPTS = ("Once", "One day", "Tom", "The fox went home.")
THREADS, CALLS = 8, 2000  # calls of all threads together


def together(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Run `work` in several threads at once; raises their errors, and fails if one hangs."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def beams(model: halfbyte.LanguageModel, prompt: str, seed: int) -> Any:
    return model.beam_search(prompt, num_beams=2, max_tokens=2 + seed)


def last_logits(model: halfbyte.LanguageModel, prompt: str, seed: int) -> bytes:
    return model.logits(model.tokenizer.encode(prompt)).tobytes()


def in_pieces(model: halfbyte.LanguageModel, prompt: str, seed: int) -> str:
    return "".join(list(model.stream(prompt, max_tokens=3, seed=seed)))


def left_half_way(model: halfbyte.LanguageModel, prompt: str, seed: int) -> str:
    return next(model.stream(prompt, max_tokens=9, seed=seed))


def in_a_loop(model: halfbyte.LanguageModel, prompt: str, seed: int) -> str:
    async def read() -> str:
        return "".join([piece async for piece in model.astream(prompt, max_tokens=3, seed=seed)])

    return aio.run(read())


CALLED: tuple[Callable[[halfbyte.LanguageModel, str, int], Any], ...] = (
    lambda model, prompt, seed: model.generate(prompt, max_tokens=3, seed=seed),
    lambda model, prompt, seed: model.perplexity(prompt + " there was"),
    in_pieces, left_half_way, in_a_loop, last_logits, beams,
)  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_a_model(storyteller: Path, threads: int) -> None:
    with halfbyte.load(storyteller, threads=threads, context=64) as model:
        cases = [(call, prompt, seed) for call in CALLED for prompt in PROMPTS for seed in (1, 2)]
        expected = [call(model, prompt, seed) for call, prompt, seed in cases]

        def work(number: int) -> None:
            choose = random.Random(number)
            for _ in range(CALLS // 2 // THREADS):
                case = choose.randrange(len(cases))
                call, prompt, seed = cases[case]
                assert call(model, prompt, seed) == expected[case], case

        together(work)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_a_session(threads: int) -> None:
    options = HALFBYTE.SessionOptions()
    options.intra_op_num_threads = threads
    inputs = [np.full((1 + n % 11, 8), n, np.float32) for n in range(22)]  # more than are kept
    with session(HALFBYTE, network(), options) as shared:
        expected = [shared.run(None, {"x": x})[0] for x in inputs]

        def work(number: int) -> None:
            binding = shared.io_binding()
            binding.bind_output("y")
            for step in range(CALLS // 2 // THREADS):
                case = (number + step // 4) % len(inputs)
                if step % 2:
                    (y,) = shared.run(None, {"x": inputs[case]})
                else:
                    binding.bind_cpu_input("x", inputs[case])
                    shared.run_with_iobinding(binding)
                    (y,) = binding.copy_outputs_to_cpu()
                np.testing.assert_array_equal(y, expected[case])

        together(work)


def network() -> bytes:
    return model(
        [node("MatMul", "x w", "a"), node("Tanh", "a", "b"), node("MatMul", "b w")],
        [tensor("x", FLOAT, ["n", 8])], [tensor("y", FLOAT, ["n", 8])],
        [weight("w", np.arange(-32, 32).reshape(8, 8) / 100)],
    )  # fmt: skip


def test_threads_share_a_chat(tmp_path: Path) -> None:
    conversations = [[{"role": "user", "content": text}] for text in PROMPTS]
    with halfbyte.load(sentencepiece(tmp_path / "m.gguf")) as model:
        chat = Chat(model)

        def answer(messages: list[dict[str, str]]) -> str:
            return "".join(chat.begin(messages, max_tokens=3, seed=1))

        expected = [(answer(m), chat.encode(m), chat.render(m)) for m in conversations]

        def work(number: int) -> None:
            for step in range(12):
                case = (number + step) % len(conversations)
                messages = conversations[case]
                results = answer(messages), chat.encode(messages), chat.render(messages)
                assert results == expected[case]

        together(work)


def test_a_text_in_the_middle_of_another(
    storyteller: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one thread neither waits for the other, and both are right."""

    def wait(signal: object, seconds: float) -> None:
        raise AssertionError("a turn waited")

    monkeypatch.setattr(turns._Signal, "wait", wait)
    with halfbyte.load(storyteller) as model:
        outer, inner = (model.generate(p, max_tokens=6, seed=1) for p in ("Once", "Tom"))
        pieces = []
        for piece in model.stream("Once", max_tokens=6, seed=1):
            pieces.append(piece)
            assert model.generate("Tom", max_tokens=6, seed=1) == inner
            model.feed([1, 2, 3])
        assert "".join(pieces) == outer
        with model.exclusive():
            pieces = []
            for piece in model.stream("Once", max_tokens=6, seed=1):
                pieces.append(piece)
                model.feed([1, 2, 3])
        assert "".join(pieces) == outer


def test_tasks_of_one_loop_take_turns(storyteller: Path) -> None:
    """The second text waits for the first, while the loop runs."""
    options = {"max_tokens": 8, "seed": 1}
    finished: list[str] = []

    async def read(model: halfbyte.LanguageModel, prompt: str) -> str:
        text = "".join([piece async for piece in model.astream(prompt, **options)])
        finished.append(prompt)
        return text

    async def main(model: halfbyte.LanguageModel) -> tuple[list[str], int]:
        ticks = 0
        tasks = [asyncio.create_task(read(model, prompt)) for prompt in PROMPTS]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            ticks += 1
        return [await task for task in tasks], ticks

    with halfbyte.load(storyteller) as model:
        expected = [model.generate(prompt, **options) for prompt in PROMPTS]
        texts, ticks = aio.run(main(model))
    assert texts == expected
    assert finished == list(PROMPTS)
    assert ticks >= 8 * len(PROMPTS)


def test_a_task_that_is_cancelled_gives_its_place_up(storyteller: Path) -> None:
    async def main(model: halfbyte.LanguageModel) -> str:
        first = model.astream("Once", max_tokens=60, seed=1)
        await anext(first)
        waits = asyncio.create_task(anext(model.astream("Tom")))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        await first.aclose()  # type: ignore[attr-defined]
        return "".join([piece async for piece in model.astream("One day", max_tokens=5, seed=1)])

    with halfbyte.load(storyteller) as model:
        assert aio.run(main(model)) == model.generate("One day", max_tokens=5, seed=1)


def test_nobody_waits_for_a_text_that_was_left(
    storyteller: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its reader comes back, the text continues as if nothing had happened."""
    monkeypatch.setattr(turns, "PATIENCE", 0.05)
    with halfbyte.load(storyteller) as model:
        expected = [model.generate(p, max_tokens=5, seed=1) for p in ("Once", "Tom")]
        left = model.stream("Once", max_tokens=5, seed=1)
        pieces, others = [next(left)], []
        together(lambda _: others.append(model.generate("Tom", max_tokens=5, seed=1)), 2)
        assert others == [expected[1]] * 2
        assert "".join([*pieces, *left]) == expected[0]
        dropped = model.stream("Once")
        next(dropped)
        monkeypatch.setattr(turns, "PATIENCE", 600)
        del dropped
        gc.collect()
        together(lambda _: model.generate("Tom", max_tokens=5), 1)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.001)


def test_first_come_first_served() -> None:
    """Even a thread that returns at once queues after those that wait."""
    queue = Turns(lambda: HalfbyteError("closed"))
    order: list[int] = []

    def work(number: int) -> None:
        until(lambda: len(queue._queue) == number)
        for _ in range(3):
            with queue.whole():
                until(lambda: len(queue._queue) >= 3 or len(order) > 8)
                order.append(number)

    with queue.whole():
        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(queue._queue) == 4)
    for thread in threads:
        thread.join(20)
    assert order == [0, 1, 2, 3] * 3


def test_what_is_closed_says_so(storyteller: Path) -> None:
    """A text of another thread ends with an error, as does one that waits; nothing crashes."""
    model, problems = halfbyte.load(storyteller, threads=2), []
    begun = threading.Semaphore(0)

    def work(number: int) -> None:
        try:
            while True:
                for _ in model.stream(PROMPTS[number]):
                    begun.release()
        except HalfbyteError as error:
            problems.append(str(error))

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        assert begun.acquire(timeout=20)
    model.close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert problems == [f"{storyteller}: the model is closed"] * 2
    for call in (model.generate, lambda: model.feed([1]), lambda: model.beam_search("a")):
        with pytest.raises(HalfbyteError, match="the model is closed"):
            call()
    model.close()


def test_sessions_are_closed_between_runs() -> None:
    shared = session(HALFBYTE, added())
    problems: list[HalfbyteError] = []
    begun = threading.Semaphore(0)

    def work(number: int) -> None:
        try:
            while True:
                shared.run(None, {"x": np.zeros((1 + number, 2), np.float32)})
                begun.release()
        except HalfbyteError as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(9):
        assert begun.acquire(timeout=20)
    shared.close()
    for thread in threads:
        thread.join(20)
    assert [type(p).__name__ for p in problems] == ["Fail"] * 4
    assert "the session is closed" in str(problems[0])


@pytest.mark.parametrize("threads", [1, 2])
def test_an_executable_runs_one_at_a_time(storyteller: Path, threads: int) -> None:
    """Calls that bypass the model's queue wait too."""
    with halfbyte.load(storyteller, threads=threads) as model:
        expected = model.logits([1, 300, 301])[-1].copy()
        registers = {"n": 3, "position": 0, "rows": 1}
        model._ids[:3] = [1, 300, 301]

        def work(_: int) -> None:
            for step in range(60):
                if step % 10:
                    model.executable.run(registers)
                else:
                    model.executable.profile(registers)

        together(work)
        np.testing.assert_array_equal(model._logits[0], expected)


def test_threads_share_kernels() -> None:
    kernels = Kernels(threads=2)
    w = np.random.default_rng(0).standard_normal((300, 64), np.float32)

    def work(number: int) -> None:
        x = np.full((1, 64), number, np.float32)
        expected = np.zeros((1, 300), np.float32)
        Kernels().call("matmul_f32", y=expected, w=w, x=x, n=1, k=64, m=300)
        for _ in range(100):
            y = np.zeros_like(expected)
            kernels.call("matmul_f32", y=y, w=w, x=x, n=1, k=64, m=300)
            np.testing.assert_array_equal(y, expected)

    together(work)
    kernels.close()
