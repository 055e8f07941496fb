"""halfbyte's lane of the race, in the page's Python: see ``page/race/``.

It writes and encodes as often as asked, and predicts with the profiles of `halfbyte.device` how
fast a device would write in a tab while it warms up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from halfbyte.device.profile import load_profile, profile_names
from halfbyte.device.quantity import Draws
from halfbyte.device.simulate import simulate
from halfbyte.device.speed import Processor, Tokens
from halfbyte.device.summary import band
from halfbyte.device.tab import in_tab
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.session import InferenceSession, SessionOptions
from halfbyte.text.loading import load_bytes, tab_place
from halfbyte.text.model import LanguageModel
from halfbyte.text.planning import Plan, Settings, plan

SAY_SECONDS = 0.1  # between two messages about a text that is being written
DRAWS = 60  # devices of a prediction: enough for its 10 and 90 % quantiles


class Racer:
    """Opens a model, and runs it as often as asked."""

    def __init__(self) -> None:
        self._model: LanguageModel | None = None
        self._session: InferenceSession | None = None

    async def open_text(self, blob: Any, threads: int, context: int) -> dict[str, Any]:
        """Open a language model, JavaScript's `Blob`."""
        from halfbyte.download.browser import read_file

        place = tab_place("model.gguf", {"threads": threads, "context": context})
        data = await read_file(blob, lambda done, total: None, place)
        self.take(load_bytes(data, "model.gguf", own=True, threads=threads, context=context))
        executable = self._text_model().executable
        return {"threads": executable.threads, "backend": executable.backend}

    def take(self, model: LanguageModel) -> None:
        """Write with this model."""
        self._model = model

    def open_graph(self, data: bytes, threads: int) -> dict[str, Any]:
        """Open a sentence encoder, an ONNX file."""
        options = SessionOptions()
        options.intra_op_num_threads = threads
        self._session = InferenceSession(data, options)
        return {"threads": threads}

    def write(
        self, prompt: str, count: int, say: Callable[[str, int, float], object]
    ) -> dict[str, Any]:
        """Read a prompt and continue it with the likeliest tokens.

        The times are a clock's, around everything: seconds to the first token, and seconds of the
        `tokens` after it.
        """
        model = self._text_model()
        model.reset()
        generation = model.generation(prompt, max_tokens=count, temperature=0)
        start = said = time.perf_counter()
        first, before = 0.0, 0  # when the first piece came, and the tokens until then
        for _ in generation:
            now = time.perf_counter()
            if not first:
                first, before = now, len(generation.ids)
            elif now - said > SAY_SECONDS:
                said = now
                say(generation.text, len(generation.ids) - before, now - first)
        end = time.perf_counter()
        return {
            "prompt": len(generation.prompt_ids) - generation.reused,
            "reading": (first or end) - start,
            "tokens": len(generation.ids) - before, "writing": end - (first or end),
            "text": generation.text,
        }  # fmt: skip

    def encode(self, ids: Sequence[int]) -> dict[str, Any]:
        """The embedding of a text, given as token ids; and the seconds that it took."""
        if self._session is None:
            raise HalfbyteError("no encoder is open")
        tokens = np.array([ids], np.int64)
        values = {"attention_mask": np.ones_like(tokens), "token_type_ids": np.zeros_like(tokens)}
        names = [x.name for x in self._session.get_inputs()]
        feeds = {name: values.get(name, tokens) for name in names}
        start = time.perf_counter()
        output = self._session.run(None, feeds)[0]
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "output": np.asarray(output, np.float32).ravel().tolist()}

    def devices(self, threads: int) -> list[dict[str, Any]]:
        """Name, title and predicted tokens/s of each device, cold and in a tab."""
        planned, rows = self._plan(), []
        for name in profile_names():
            profile = in_tab(load_profile(name))
            draws = Draws(np.random.default_rng(0), DRAWS)
            rates = Processor(profile, min(threads, profile.cores), draws).rates()
            token, _ = Tokens(planned, from_storage=False).passes(profile, draws)
            speed = 1 / float(np.median(token.seconds(rates)))
            rows.append({"name": name, "title": profile.title, "speed": speed})
        return rows

    def predict(self, name: str, threads: int, minutes: float) -> dict[str, Any]:
        """Tokens/s of a device that writes without a pause: low, median and high over time."""
        profile = in_tab(load_profile(name))
        task = Tokens(self._plan(), from_storage=False)
        result = simulate(
            task, profile, minutes=minutes, threads=min(threads, profile.cores), draws=DRAWS,
            step=1.0,
        )  # fmt: skip
        speeds = band(result.speed)
        return {
            "name": name, "title": profile.title, "seconds": result.seconds.tolist(),
            "low": speeds.low.tolist(), "median": speeds.median.tolist(),
            "high": speeds.high.tolist(),
        }  # fmt: skip

    def _plan(self) -> Plan:
        model = self._text_model()
        return plan(model.file, Settings(model.context, weights="packed"))

    def _text_model(self) -> LanguageModel:
        if self._model is None:
            raise HalfbyteError("no language model is open")
        return self._model
