"""halfbyte's lane of the race, outside the browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tools.onnx_models import make

import halfbyte
from halfbyte.device.profile import profile_names
from halfbyte.web.race import Racer

PROMPT = "Once upon a time a fox named Tom lived near a wood."


@pytest.fixture(scope="module")
def racer(storyteller: Path) -> Iterator[Racer]:
    with halfbyte.load(storyteller, context=128, threads=1) as model:
        racer = Racer()
        racer.take(model)
        yield racer


def test_it_writes_what_the_model_does(racer: Racer, storyteller: Path) -> None:
    """Each time from the beginning: nothing of the prompt is kept from the last run."""
    with halfbyte.load(storyteller, context=128) as model:
        expected = model.generate(PROMPT, max_tokens=24, temperature=0)
        count = len(model.tokenizer.encode(PROMPT))
    for _ in range(2):
        result = racer.write(PROMPT, 24, lambda *said: None)
        assert result["text"] == expected
        assert (result["prompt"], result["tokens"]) == (count, 23)
        assert min(result["reading"], result["writing"]) > 0


def test_it_encodes_what_the_session_does() -> None:
    content = make("bert-small", pooled=True).SerializeToString()
    racer = Racer()
    racer.open_graph(content, 1)
    ids = [2, 7, 8, 9, 3]
    result = racer.encode(ids)
    session = halfbyte.InferenceSession(content)
    tokens = np.array([ids], np.int64)
    feeds = {x.name: np.zeros_like(tokens) for x in session.get_inputs()}
    feeds |= {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
    expected = np.asarray(session.run(None, feeds)[0]).ravel()
    np.testing.assert_array_equal(np.array(result["output"], np.float32), expected)
    assert result["seconds"] > 0


def test_devices_and_their_five_minutes(racer: Racer) -> None:
    """The speed by which the nearest device is chosen is that with which its prediction begins."""
    devices = {device["name"]: device for device in racer.devices(2)}
    assert sorted(devices) == sorted(profile_names())
    assert devices["galaxy-s25"]["speed"] > 2 * devices["raspberry-pi-zero-2-w"]["speed"]
    result = racer.predict("galaxy-s25", 2, 1)
    assert result["title"] == devices["galaxy-s25"]["title"]
    assert (len(result["seconds"]), result["seconds"][-1]) == (60, 60.0)
    np.testing.assert_allclose(result["median"][0], devices["galaxy-s25"]["speed"], rtol=0.1)
    for low, median, high in zip(result["low"], result["median"], result["high"], strict=True):
        assert 0 <= low <= median <= high
