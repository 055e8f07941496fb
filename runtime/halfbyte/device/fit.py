"""Does a model fit a device: bytes at each level against what it gives, and what would fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from halfbyte.core.program import Kind
from halfbyte.device.cost import F64, Rates
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Quantity
from halfbyte.device.smaller import smaller_types
from halfbyte.device.speed import Draws, Processor, Speed, fast_cores
from halfbyte.device.tab import in_tab
from halfbyte.download.transfer import ARRAY_BYTES
from halfbyte.errors import HalfbyteError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text import footprint
from halfbyte.text.footprint import FILE
from halfbyte.text.planning import LEVELS, Given, Plan, Settings, plan, settings_of

DRAWS = 200  # of the profile's uncertain numbers
_STEP = 64  # tokens, of which the largest context is a multiple
_HEADER_BYTES = 40  # of a token in a GGUF file: its text, type and merges


@dataclass(frozen=True)
class Spread:
    """A number's median, and what 10 and 90 % of draws are below."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: F64) -> Spread:
        """Of draws."""
        low, median, high = np.percentile(values, (10, 50, 90))
        return cls(float(median), float(low), float(high))


@dataclass(frozen=True)
class Verdict:
    """Whether one choice of settings fits, and why.

    Attributes
    ----------
    settings : str
        In words, as of the command line.
    memory : dict of str to int
        Bytes by kind.
    private : int
        Of these, what the system cannot drop and read again: that is what must fit.
    fits : bool
        Whether it does at the middle of what the device gives.
    sure : bool
        Whether the verdict is the same all over the range.
    from_storage : bool
        Weights are read from storage in every run: on purpose, or because their pages are dropped.
    """

    settings: str
    memory: dict[str, int]
    total: int
    private: int
    fits: bool
    sure: bool
    from_storage: bool


@dataclass(frozen=True)
class Need(Verdict):
    """What a language model needs, and how fast it is.

    Attributes
    ----------
    context : int
        Tokens.
    decode, prompt : Spread
        Tokens/s while nothing is hot yet.
    """

    context: int
    decode: Spread
    prompt: Spread


N = TypeVar("N", bound=Verdict)


@dataclass(frozen=True)
class Fit(Generic[N]):
    """Whether a model fits, with the numbers, and what would.

    `asked` is what the verdict is about, `levels` are all levels by name, of which graphs have
    none, `would` changes of what was asked, each enough by itself, where it does not fit.
    """

    model: str
    device: str
    place: str
    limit_mb: Quantity
    threads: int
    asked: N
    levels: dict[str, N]
    would: list[N]

    @property
    def fits(self) -> bool:
        """The verdict."""
        return self.asked.fits

    def as_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {"fits": self.fits, **asdict(self)}


class Room:
    """What a device gives an app, or a tab of its browser.

    Parameters
    ----------
    threads : int, optional
        Cores that compute; by default the fast ones. A tab has one.
    seed : int
        Of the draws.

    Raises
    ------
    HalfbyteError
        The device has not so many cores.
    """

    def __init__(self, profile: Profile, threads: int | None, seed: int, *, tab: bool) -> None:
        self.profile, self.tab, self._seed = in_tab(profile) if tab else profile, tab, seed
        self.place = "tab" if tab else "app"
        self.limit = self.profile.memory.tab_mb if tab else self.profile.memory.app_mb
        self.threads = 1 if tab else fast_cores(profile) if threads is None else threads
        if not 1 <= self.threads <= profile.cores:
            raise HalfbyteError(f"threads {self.threads}: expected 1 to {profile.cores}")

    def fits(self, memory: dict[str, int]) -> bool:
        """Whether these bytes by kind do, and a tab's file is one array."""
        return _private(memory) <= self.limit.value * 1e6 and not too_large(memory)

    def verdict(self, words: str, memory: dict[str, int], *, streamed: bool = False) -> Verdict:
        """The verdict on these bytes; weights may be streamed."""
        total, private = sum(memory.values()), _private(memory)
        dropped = private < total and total > self.limit.value * 1e6
        return Verdict(
            words, memory, total, private,
            fits=self.fits(memory),
            sure=too_large(memory)
            or private <= self.limit.low * 1e6
            or private > self.limit.high * 1e6,
            from_storage=streamed or dropped,
        )  # fmt: skip

    def draws(self) -> tuple[Draws, Rates]:
        """Draws of what is not known, and what the cores do then; the same ones each time."""
        draws = Draws(np.random.default_rng(self._seed), DRAWS)
        return draws, Processor(self.profile, self.threads, draws).rates()


class Fitter:
    """Tries settings of one model on one device; see :class:`Room`."""

    def __init__(
        self,
        file: ModelFile,
        profile: Profile,
        threads: int | None = None,
        seed: int = 0,
        *,
        tab: bool = False,
    ) -> None:
        self.file, self.room = file, Room(profile, threads, seed, tab=tab)

    def fit(self, level: str, given: Given) -> Fit[Need]:
        """The verdict for a level with these settings in place of its own.

        Raises
        ------
        HalfbyteError
            A tab has no such weights.
        """
        settings = settings_of(level, given)
        if self.room.tab and settings.weights != "packed":
            raise HalfbyteError(
                f"{self.file.path}: weights {settings.weights!r} in a tab: expected 'packed', as "
                "of level baseline: all weights lie in its heap, nothing is mapped or streamed; "
                "--context, --cache and --batch need less there"
            )
        asked = self.need(_words(level, given), plan(self.file, settings))
        levels = {
            name: self.need(f"--level {name}", plan(self.file, settings_of(name, given)))
            for name in (LEVELS if not self.room.tab else (level,))
        }
        would = [] if asked.fits else list(self._would(settings))
        room = self.room
        return Fit(
            str(self.file.path), room.profile.name, room.place, room.limit, room.threads, asked,
            levels, would,
        )  # fmt: skip

    def need(self, words: str, planned: Plan) -> Need:
        """What a plan needs here."""
        verdict = self.room.verdict(
            words, self._memory(planned), streamed=planned.reader is not None
        )
        draws, rates = self.room.draws()
        speed = Speed(planned, self.room.profile, draws, from_storage=verdict.from_storage)
        return Need(
            **vars(verdict),
            context=planned.program.sizes["position"].maximum,
            decode=Spread.of(1 / speed.token.seconds(rates)),
            prompt=Spread.of(1 / speed.prompt.seconds(rates)),
        )

    def _fits(self, planned: Plan) -> bool:
        return self.room.fits(self._memory(planned))

    def _memory(self, planned: Plan) -> dict[str, int]:
        """Bytes by kind: in a tab weights are packed where its heap has the file."""
        if not self.room.tab:
            return planned.memory
        weights = planned.program.bytes_by_kind()[Kind.WEIGHT]
        beside = {k: v for k, v in planned.memory.items() if k != "weights (packed)"}
        return footprint.in_tab(beside, weights + self._header)

    @cached_property
    def _header(self) -> int:
        """Bytes of the file beside its tensors, or of the GGUF file that a tab would be given."""
        if self.file.kind.startswith("GGUF") and self.file.parts:
            return self.file.size - sum(t.nbytes for t in self.file.tensors.values())
        return _HEADER_BYTES * self.file.tensors["token_embd.weight"].shape[0]

    # ---- what would fit --------------------------------------------------------------------------

    def _would(self, settings: Settings) -> Iterator[Need]:
        """Single changes that make it fit, those first that cost least."""
        changes = []
        if context := self._largest_context(settings):
            changes.append((f"--context {context}", replace(settings, context=context)))
        changes.append(("--cache q8_0", replace(settings, cache="smallest")))
        for words, changed in changes:
            if self._fits(planned := plan(self.file, changed)):
                yield self.need(words, planned)
        for words, file in smaller_types(self.file):
            if self._fits(planned := plan(file, settings)):
                yield self.need(words, planned)
        if self.room.tab:
            changed = replace(settings, cache="smallest", batch=16, context=None, max_context=1024)
            if shorter := self._shortened(changed):
                words = f"--context {shorter.settings.context} --cache smallest --batch 16"
                yield self.need(words, shorter)
            return
        for weights in ("mapped", "streamed"):
            if self._fits(planned := plan(self.file, replace(settings, weights=weights))):
                yield self.need(f"--weights {weights}", planned)
        for level in ("aggressive", "extreme"):
            if shorter := self._shortened(LEVELS[level]):
                least, whole = shorter.settings.context, plan(self.file, LEVELS[level]).settings
                words = "" if least == whole.context else f" --context {least}"
                yield self.need(f"--level {level}{words}", shorter)

    def _shortened(self, settings: Settings) -> Plan | None:
        """What fits with these settings, with as much less context as it needs for that."""
        if self._fits(planned := plan(self.file, settings)):
            return planned
        context = self._largest_context(settings)
        return plan(self.file, replace(settings, context=context)) if context else None

    def _largest_context(self, settings: Settings) -> int:
        """The largest context that fits, in steps; 0 where none does."""

        def fits(steps: int) -> bool:
            return self._fits(plan(self.file, replace(settings, context=_STEP * steps)))

        most = plan(self.file, settings).program.sizes["position"].maximum
        return _STEP * largest(fits, (most - 1) // _STEP)


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number from 1 to `most` that fits, where all smaller ones do; 0 for none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def too_large(memory: dict[str, int]) -> bool:
    """Whether a tab's file is larger than any array there, however much memory there is."""
    return memory.get(FILE, 0) > ARRAY_BYTES


def _private(memory: dict[str, int]) -> int:
    return sum(memory.values()) - memory.get("weights (mapped)", 0)


def _words(level: str, given: Given) -> str:
    return " ".join([f"--level {level}", *(f"--{key} {value}" for key, value in given.items())])
