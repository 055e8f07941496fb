"""The page's texts as on another device: at its speed, within its memory, and with its heat.

The device is `simulate`'s, with its profile, network and governor (`halfbyte.device.emulate`), in
its browser (`in_tab`). Seconds there are seconds here: it writes without a pause while a text is
written, and rests in between. A text is never faster than the device; where this tab is slower,
messages say so. They have the kind "devices" (all that may be chosen) or "device".
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np

from halfbyte.device.emulate import Emulation, Work
from halfbyte.device.fit import Fitter
from halfbyte.device.profile import Profile, load_profile, profile_names
from halfbyte.device.quantity import Draws
from halfbyte.device.room import Spread
from halfbyte.device.speed import Processor, Tokens, fast_cores
from halfbyte.device.tab import in_tab
from halfbyte.errors import HalfbyteError, MemoryBudgetError
from halfbyte.text.generate import Generation
from halfbyte.text.model import LanguageModel
from halfbyte.text.placing import listed
from halfbyte.text.planning import Settings, plan
from halfbyte.web.engine import Engine

THREADS = 8  # the most that a page uses by default
DRAWS = 60  # enough for 10 and 90 % quantiles
SAY_S = 0.5  # between two messages
WAIT_S = 0.25  # the longest wait in which nothing is yielded, so that a text can be stopped
CREDIT_S = 0.05  # by how much a text that was late may catch up, since timers are late
ASLEEP_S = 60.0  # the most that passes at once: while the browser freezes the page, all sleeps
SKIP_S = 5.0  # of the device's time between two messages while time is skipped
LOST = 0.05  # the share of a text's time by which it is late when the tab is called slower
WARMING = 8  # tokens before that is judged
OFF = "The device has switched itself off: it is too hot, or its battery is empty."
CASES = ("body", "chassis", "board")  # nodes that a hand feels, the first that a device has


class Feeling:
    """Lets an engine's texts be felt as on a device; `post` sends one message to the page."""

    def __init__(self, engine: Engine, post: Callable[[str], object]) -> None:
        self._engine, self._post = engine, post
        self._profile: Profile | None = None  # in its browser
        self._facts: dict[str, Any] = {}
        self._refusal = ""  # why the model does not fit
        self.emulation: Emulation | None = None
        self._now, self._skipping = 0.0, False
        self.writing = False  # whether a text is being written
        self.tab_speed = 0.0  # this tab's tokens/s, if it cannot keep up with the device
        self._tick: asyncio.Task[None] | None = None

    def devices(self) -> None:
        """Post the names and titles of all devices."""
        rows = [{"name": name, "title": load_profile(name).title} for name in profile_names()]
        self._say("devices", devices=sorted(rows, key=lambda row: row["title"]))

    def choose(self, name: str) -> None:
        """Feel a device from now on, cold; with "" this machine again."""
        self._leave()
        if not name:
            return
        self._profile, self.tab_speed = in_tab(load_profile(name)), 0.0
        self._engine.device = self
        self._open(self._profile, self._engine.model)
        self._say_state()
        if self.emulation:
            self._tick = asyncio.get_running_loop().create_task(self._tell())

    def _leave(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
        self._engine.device = self.emulation = self._tick = None

    def _open(self, profile: Profile, model: LanguageModel | None) -> None:
        threads = min(fast_cores(profile), THREADS)
        self._facts = {
            "name": profile.name, "title": profile.title, "threads": threads,
            "air": profile.thermal.ambient_c.value, "numbers": profile.origins(),
            "limit": profile.thermal.allocator.control_c.value,
        }  # fmt: skip
        self._refusal, self._now = "", time.perf_counter()
        if model is None:
            return
        try:
            self.admit(model)
        except MemoryBudgetError as error:
            self._refusal = str(error)
            return
        task = Tokens(plan(model.file, _settings(model)), from_storage=False)
        draws = Draws(np.random.default_rng(0), DRAWS)
        token, _ = task.passes(profile, draws)
        speed = Spread.of(1 / token.seconds(Processor(profile, threads, draws).rates()))
        self._facts["cold"] = {"low": speed.low, "high": speed.high}
        self.emulation = Emulation(task, profile, threads, 1 / speed.median)

    # ---- memory ----------------------------------------------------------------------------------

    def allow(self, size: int | None) -> None:
        """Raise `MemoryBudgetError` for a file that is larger than the device's tab."""
        assert self._profile  # noqa: S101 - chosen
        limit = self._profile.memory.tab_mb.value
        if size and size > limit * 1e6:
            raise MemoryBudgetError(
                f"{self._profile.title}: a file of {size / 1e6:,.0f} MB does not fit: a tab of its "
                f"browser has {limit:,.0f} MB"
            )

    def admit(self, model: LanguageModel) -> None:
        """Raise `MemoryBudgetError`, with the numbers, for a model that does not fit."""
        assert self._profile  # noqa: S101 - chosen
        fitter = Fitter(model.file, load_profile(self._profile.name), tab=True)
        need = fitter.need("", plan(model.file, _settings(model)))
        self._facts["memory"] = {"needs": need.total, "limit": fitter.room.limit.value * 1e6}
        if not need.fits:
            raise MemoryBudgetError(
                f"{self._profile.title}: {model.path.name}: {listed(need.memory)}: a tab of its "
                f"browser has {fitter.room.limit.value:,.0f} MB"
            )

    # ---- time ------------------------------------------------------------------------------------

    def felt(self, generation: Generation) -> Felt:
        """The text at the device's pace.

        Raises
        ------
        MemoryBudgetError
            The model does not fit.
        """
        if self.emulation is None:
            raise MemoryBudgetError(self._refusal)
        return Felt(generation, self)

    def go_on(self, work: Work) -> None:
        """Let the time pass that has passed here."""
        now = time.perf_counter()
        if self.emulation and not self._skipping:
            self.emulation.go_on(min(now - self._now, ASLEEP_S), work)
        self._now = now

    async def skip(self, minutes: float) -> None:
        """Let minutes pass at once, in which the device writes."""
        device, end = self.emulation, 60 * minutes
        if device is None or self._skipping:
            return
        self._skipping = True
        try:
            while end > 0 and device is self.emulation:
                device.go_on(min(SKIP_S, end), Work.ANSWER)
                end -= SKIP_S
                self._say_state()
                await asyncio.sleep(0)
        finally:
            self._skipping, self._now = False, time.perf_counter()
            self._say_state()

    async def _tell(self) -> None:
        """Post the state every now and then; between texts the device rests."""
        while True:
            await asyncio.sleep(SAY_S)
            if not self.writing:
                self.go_on(Work.REST)
            if not self._skipping:
                self._say_state()

    def _say_state(self) -> None:
        content = {**self._facts, "refusal": self._refusal, "skipping": self._skipping}
        if self.emulation is not None and self._profile is not None:
            state = self.emulation.state
            case = next((name for name in CASES if name in state.celsius), None)
            content |= {
                "seconds": state.seconds, "megahertz": state.megahertz, "charge": state.charge,
                "on": state.on, "speed": state.speed, "kept": state.kept,
                "case": state.celsius[case] if case else None,
                "processor": max(state.celsius[c.node] for c in self._profile.clusters),
                "slower": self.tab_speed if 0 < self.tab_speed < state.speed else None,
            }  # fmt: skip
        self._say("device", **content)

    def _say(self, kind: str, **content: Any) -> None:
        self._post(json.dumps({"kind": kind, **content}))


class Felt:
    """A generation, no piece of which comes before its turn on a device.

    Other attributes are the generation's; speeds are those that are felt.
    """

    def __init__(self, generation: Generation, feeling: Feeling) -> None:
        self._generation, self._feeling = generation, feeling
        self._times: list[float] = []  # of the start, of the first token and of the last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generation, name)

    @property
    def prompt_speed(self) -> float:
        """Tokens of the prompt per second."""
        fed = len(self._generation.prompt_ids) - self._generation.reused
        return fed / (self._times[1] - self._times[0]) if len(self._times) > 1 else 0.0

    @property
    def decode_speed(self) -> float:
        """Tokens after the first per second."""
        later = len(self._generation.ids) - 1
        return later / (self._times[2] - self._times[1]) if len(self._times) > 2 else 0.0

    async def __aiter__(self) -> AsyncIterator[str]:
        """The pieces; "" while there is none, so that the reader may stop."""
        feeling, generation = self._feeling, self._generation
        due, before, lost = time.perf_counter(), 0, 0.0
        self._times = [due]
        feeling.go_on(Work.REST)
        feeling.writing, feeling.tab_speed = True, 0.0
        try:
            async for piece in generation:
                work = Work.ANSWER if before else Work.PROMPT
                due, count = due + self._turn(len(generation.ids) - before), len(generation.ids)
                while (wait := due - time.perf_counter()) > 0:
                    await asyncio.sleep(min(wait, WAIT_S))
                    feeling.go_on(work)
                    if wait > WAIT_S:
                        yield ""
                feeling.go_on(work)
                before = count
                now = time.perf_counter()
                self._times[1 if work is Work.PROMPT else 2 :] = [now]
                if (late := now - CREDIT_S - due) > 0:
                    due += late
                    lost += late if work is Work.ANSWER else 0.0
                slower = count > WARMING and lost > LOST * (now - self._times[1])
                feeling.tab_speed = self.decode_speed if slower else 0.0
                yield piece
        finally:
            feeling.go_on(Work.ANSWER if before else Work.PROMPT)
            feeling.writing = False

    def _turn(self, tokens: int) -> float:
        """Seconds of these tokens, or of the prompt before the first one."""
        device, generation = self._feeling.emulation, self._generation
        if device is None:  # no longer chosen
            return 0.0
        if not device.on:
            raise HalfbyteError(OFF)
        if self._times[1:]:
            return tokens * device.token_s
        return (len(generation.prompt_ids) - generation.reused) * device.prompt_s


def _settings(model: LanguageModel) -> Settings:
    return Settings(model.context, weights="packed")
