"""Arguments of the Python interface: wrong ones raise our TypeErrors, which name them."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import aio
from tests.text.chat.models import sentencepiece

import halfbyte
from halfbyte.errors import HalfbyteError

MESSAGES = [{"role": "user", "content": "Hello"}]
CALLS = ("generate", "stream", "astream", "generation")
CHATS = ("chat", "stream_chat", "astream_chat")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> halfbyte.LanguageModel:
    path = sentencepiece(tmp_path_factory.mktemp("model") / "m.gguf")
    return halfbyte.load(path, context=64)


def refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert isinstance(caught.value, HalfbyteError)
    assert str(caught.value) == message


@pytest.mark.parametrize("name", [*CALLS, *CHATS, "generate_batch", "beam_search"])
def test_unknown_keywords_name_the_function_that_was_called(
    name: str, model: halfbyte.LanguageModel
) -> None:
    first = MESSAGES if name in CHATS else ["Once"] if name == "generate_batch" else "Once"
    call = getattr(model, name)
    problem = f"{name}() got an unexpected keyword argument"
    refused(lambda: call(first, repetition_penalt=2), f"{problem} 'repetition_penalt'; did you "
            "mean 'repetition_penalty'?")  # fmt: skip
    refused(lambda: call(first, function="x"), f"{problem} 'function'")


@pytest.mark.parametrize("name", [*CALLS, *CHATS])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("max_tokens", 1.5, "max_tokens: expected int, found float"),
        ("max_tokens", None, "max_tokens: expected int, found NoneType"),
        ("stop", b"x", "stop: expected several str, found bytes"),
        ("stop", 3, "stop: expected several str, found int"),
        ("stop", ["a", 3], "stop[1]: expected str, found int"),
        ("temperature", "hot", "temperature: expected a number, found str"),
        ("top_k", 2.0, "top_k: expected int, found float"),
        ("top_p", None, "top_p: expected a number, found NoneType"),
        ("seed", "7", "seed: expected int, found str"),
        ("logprobs", 1.0, "logprobs: expected int, found float"),
        ("logit_bias", [3], "logit_bias: expected a mapping of token ids to numbers, found list"),
        ("logit_bias", {"a": 1}, "a key of logit_bias: expected int, found str"),
        ("logit_bias", {3: "b"}, "logit_bias[3]: expected a number, found str"),
    ],
)
def test_options(
    name: str, option: str, value: Any, message: str, model: halfbyte.LanguageModel
) -> None:
    first = MESSAGES if name in CHATS else "Once"
    refused(lambda: getattr(model, name)(first, **{option: value}), message)


@pytest.mark.parametrize("name", [*CALLS, "beam_search"])
@pytest.mark.parametrize("prompt", [b"Once", None, 3])
def test_prompts(name: str, prompt: Any, model: halfbyte.LanguageModel) -> None:
    kind = type(prompt).__name__
    refused(lambda: getattr(model, name)(prompt), f"prompt: expected str, found {kind}")


def test_other_arguments(model: halfbyte.LanguageModel, storyteller: Path) -> None:
    refused(lambda: model.generate([1, 2.5]), "prompt[1]: expected int, found float")  # type: ignore[arg-type, list-item]
    refused(lambda: model.generate_batch("Once"), "prompts: expected several str, found str")
    refused(lambda: model.generate_batch([b"a"]), "prompts[0]: expected str, found bytes")  # type: ignore[list-item]
    refused(lambda: model.perplexity(b"a"), "text: expected str, found bytes")  # type: ignore[arg-type]
    refused(lambda: model.beam_search("a", 1.5), "num_beams: expected int, found float")  # type: ignore[arg-type]
    for name in CHATS:
        call = getattr(model, name)
        refused(lambda call=call: call("Hi"), "messages: expected a list of messages, found str")
        refused(
            lambda call=call: call(MESSAGES[0]), "messages: expected a list of messages, found dict"
        )
    data = storyteller.read_bytes()
    refused(lambda: halfbyte.load(3), "path: expected str or os.PathLike, found int")  # type: ignore[arg-type]
    refused(lambda: halfbyte.load(data), "path: expected str or os.PathLike, found bytes")  # type: ignore[arg-type]
    refused(lambda: halfbyte.load_bytes(str(storyteller)), "data: expected bytes, found str")  # type: ignore[arg-type]
    for name in ("context", "batch", "threads", "memory_budget"):
        option: dict[str, Any] = {name: 1.5}
        refused(
            lambda o=option: halfbyte.load(storyteller, **o), f"{name}: expected int, found float"
        )
    unknown: dict[str, Any] = {"n_ctx": 5}
    problem = "() got an unexpected keyword argument 'n_ctx'"
    refused(lambda: halfbyte.load(storyteller, **unknown), f"load{problem}")
    refused(lambda: halfbyte.load_bytes(data, **unknown), f"load_bytes{problem}")
    refused(lambda: aio.run(halfbyte.load_url("x", **unknown)), f"load_url{problem}")


def test_no_stop_string(model: halfbyte.LanguageModel) -> None:
    expected = model.generate("Once", max_tokens=5, seed=1)
    for stop in (None, [], ()):
        assert model.generate("Once", max_tokens=5, seed=1, stop=stop) == expected


def test_what_cannot_be_copied_says_so(model: halfbyte.LanguageModel) -> None:
    message = (
        f"{model.path}: a model cannot be pickled or copied: it holds memory of threads and "
        "kernels; load it from its file in each process"
    )
    for call in (pickle.dumps, copy.copy, copy.deepcopy):
        refused(lambda call=call: call(model), message)
    process = multiprocessing.get_context("spawn").Process(target=print, args=(model,))
    refused(process.start, message)
