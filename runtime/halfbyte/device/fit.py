"""Whether a language model fits a device: the memory of each level, and what would fit.

`halfbyte.device.graphs` is the counterpart for graphs. Both fitters return a `Fit` from a `Room`,
which has the rules; they share no base class, since levels, contexts and weight types are tried
here, and input sizes and rewritten graphs there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from halfbyte.device.cost import F64, Rates
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws, Quantity
from halfbyte.device.smaller import smaller_types
from halfbyte.device.speed import Processor, Speed, fast_cores
from halfbyte.device.tab import WIDE_BYTES, in_tab
from halfbyte.download.transfer import ARRAY_BYTES, HEAP_BYTES
from halfbyte.errors import HalfbyteError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text import footprint
from halfbyte.text.footprint import FILE
from halfbyte.text.planning import LEVELS, Given, Plan, Settings, plan, settings_of

DRAWS = 200  # of the profile's uncertain numbers
_STEP = 64  # tokens: suggested contexts are multiples of it
_HEADER_BYTES = 40  # per token of a GGUF file's vocabulary: its text, type and merges


@dataclass(frozen=True)
class Spread:
    """The median, 10 % and 90 % quantiles of draws."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: F64) -> Spread:
        """The spread of draws."""
        low, median, high = np.percentile(values, (10, 50, 90))
        return cls(float(median), float(low), float(high))


@dataclass(frozen=True)
class Verdict:
    """Whether one choice of settings fits, and why.

    Attributes
    ----------
    settings : str
        The settings as options of the command line.
    memory : dict of str to int
        Bytes by kind.
    private : int
        The part of the memory that the system cannot drop and read again, which must fit.
    fits : bool
        Whether it fits the most likely limit of the device.
    sure : bool
        Whether the verdict is the same over the whole range of the limit.
    from_storage : bool
        Whether weights are read from storage in every run: on purpose, or because their pages are
        dropped.
    """

    settings: str
    memory: dict[str, int]
    total: int
    private: int
    fits: bool
    sure: bool
    from_storage: bool

    def within(self, limits_mb: F64) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Whether it fits these limits, and whether weights are then read from storage."""
        streamed = self.from_storage and self.private == self.total  # nothing is mapped
        return self.private <= limits_mb * 1e6, streamed | _dropped(self, limits_mb)


@dataclass(frozen=True)
class Need(Verdict):
    """What a language model needs, and how fast it is.

    Attributes
    ----------
    context : int
        Tokens.
    decode, prompt : Spread
        Tokens/s of a cool device.
    """

    context: int
    decode: Spread
    prompt: Spread


N = TypeVar("N", bound=Verdict)


@dataclass(frozen=True)
class Fit(Generic[N]):
    """Whether a model fits, with the numbers, and what would fit.

    `numbers` counts those of the device that have a source and those that are assumed.
    `asked` is the need of the given settings. `levels` has the needs of all levels by name (graphs
    have none). If the model does not fit, `would` lists changes that suffice, one at a time.
    """

    model: str
    device: str
    place: str
    limit_mb: Quantity
    threads: int
    numbers: dict[str, int]
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
    """The memory and cores that a device offers an app, or a tab of its browser.

    Parameters
    ----------
    threads : int, optional
        Cores that compute; by default the fast ones. A tab has one.
    seed : int
        Seed of the draws.
    array : bool
        A tab holds the file as one array of NumPy, and all else in the same heap.

    Raises
    ------
    HalfbyteError
        The device has fewer cores than threads.
    """

    def __init__(
        self, profile: Profile, threads: int | None, seed: int, *, tab: bool, array: bool = False
    ) -> None:
        addressed = HEAP_BYTES if array else WIDE_BYTES
        self.profile = in_tab(profile, addressed) if tab else profile
        self.tab, self._array, self._seed = tab, array, seed
        self.place = "tab" if tab else "app"
        self.limit = self.profile.memory.tab_mb if tab else self.profile.memory.app_mb
        self.threads = 1 if tab else fast_cores(profile) if threads is None else threads
        if not 1 <= self.threads <= profile.cores:
            raise HalfbyteError(f"threads {self.threads}: expected 1 to {profile.cores}")

    def fits(self, memory: Mapping[str, int]) -> bool:
        """Whether these bytes by kind fit, including the limit on a tab's file."""
        return self.verdict("", memory).fits

    def verdict(
        self, settings: str, memory: Mapping[str, int], *, streamed: bool = False
    ) -> Verdict:
        """The verdict on these bytes; weights may be streamed."""
        memory = memory if self.tab else footprint.in_app(memory)
        total, private = sum(memory.values()), _private(memory)
        verdict = Verdict(
            settings, dict(memory), total, private,
            fits=private <= self.limit.value * 1e6 and not self._too_large(memory),
            sure=self._too_large(memory)
            or private <= self.limit.low * 1e6
            or private > self.limit.high * 1e6,
            from_storage=streamed,
        )  # fmt: skip
        return replace(
            verdict, from_storage=streamed or bool(_dropped(verdict, np.array(self.limit.value)))
        )

    def _too_large(self, memory: Mapping[str, int]) -> bool:
        """Whether a tab's file is larger than the largest array of a browser."""
        return self._array and memory.get(FILE, 0) > ARRAY_BYTES

    def draws(self) -> tuple[Draws, Rates]:
        """Draws of the uncertain numbers, and the cores' rates with them; the same each time."""
        draws = Draws(np.random.default_rng(self._seed), DRAWS)
        return draws, Processor(self.profile, self.threads, draws).rates()


class Fitter:
    """Tries settings of one model on one device; for the parameters, see :class:`Room`."""

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

    def fit(self, level: str, overrides: Given) -> Fit[Need]:
        """The verdict for a level, with these settings in place of the level's.

        Raises
        ------
        HalfbyteError
            Weights that are not packed are asked for in a tab.
        """
        settings = settings_of(level, overrides)
        if self.room.tab and settings.weights != "packed":
            raise HalfbyteError(
                f"{self.file.path}: weights {settings.weights!r} in a tab: expected 'packed', as "
                "of level baseline: all weights lie in its heap, nothing is mapped or streamed; "
                "--context, --cache and --batch need less there"
            )
        asked = self.need(_as_options(level, overrides), plan(self.file, settings))
        levels = {
            name: self.need(f"--level {name}", plan(self.file, settings_of(name, overrides)))
            for name in (LEVELS if not self.room.tab else (level,))
        }
        would = [] if asked.fits else list(self._would(settings))
        room = self.room
        return Fit(
            str(self.file.path), room.profile.name, room.place, room.limit, room.threads,
            room.profile.origins(), asked, levels, would,
        )  # fmt: skip

    def need(self, settings: str, planned: Plan) -> Need:
        """What a plan needs on this device."""
        verdict = self.room.verdict(
            settings, self._memory(planned), streamed=planned.reader is not None
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

    def _memory(self, planned: Plan) -> Mapping[str, int]:
        """Bytes by kind: in a tab, weights are packed in place, in the heap that has the file."""
        if not self.room.tab:
            return planned.memory
        weights = footprint.bytes_in_file(planned.program)
        beside = {k: v for k, v in planned.memory.items() if k != "weights (packed)"}
        return footprint.in_tab(beside, weights + self._header)

    @cached_property
    def _header(self) -> int:
        """Bytes of the file besides its tensors, or of the GGUF file that a tab would load."""
        if self.file.kind.startswith("GGUF") and self.file.parts:
            return self.file.size - sum(t.nbytes for t in self.file.tensors.values())
        return _HEADER_BYTES * self.file.tensors["token_embd.weight"].shape[0]

    # ---- what would fit --------------------------------------------------------------------------

    def _would(self, settings: Settings) -> Iterator[Need]:
        """Single changes that make the model fit, the least costly first."""
        changes = []
        if context := self._largest_context(settings):
            changes.append((f"--context {context}", replace(settings, context=context)))
        changes.append(("--cache q8_0", replace(settings, cache="smallest")))
        for option, changed in changes:
            if self._fits(planned := plan(self.file, changed)):
                yield self.need(option, planned)
        for command, file in smaller_types(self.file):
            if self._fits(planned := plan(file, settings)):
                yield self.need(command, planned)
        if self.room.tab:
            changed = replace(settings, cache="smallest", batch=16, context=None, max_context=1024)
            if shorter := self._shortened(changed):
                options = f"--context {shorter.settings.context} --cache smallest --batch 16"
                yield self.need(options, shorter)
            return
        for weights in ("mapped", "streamed"):
            if self._fits(planned := plan(self.file, replace(settings, weights=weights))):
                yield self.need(f"--weights {weights}", planned)
        for level in ("aggressive", "extreme"):
            if shorter := self._shortened(LEVELS[level]):
                usual, chosen = plan(self.file, LEVELS[level]).settings, shorter.settings
                option = "" if chosen.context == usual.context else f" --context {chosen.context}"
                yield self.need(f"--level {level}{option}", shorter)

    def _shortened(self, settings: Settings) -> Plan | None:
        """A plan with these settings that fits, with a shorter context if necessary."""
        if self._fits(planned := plan(self.file, settings)):
            return planned
        context = self._largest_context(settings)
        return plan(self.file, replace(settings, context=context)) if context else None

    def _largest_context(self, settings: Settings) -> int:
        """The largest context that fits, a multiple of 64; 0 if none does."""

        def fits(steps: int) -> bool:
            return self._fits(plan(self.file, replace(settings, context=_STEP * steps)))

        context = plan(self.file, settings).program.sizes["position"].maximum
        return _STEP * largest(fits, (context - 1) // _STEP)


def largest(fits: Callable[[int], bool], limit: int) -> int:
    """The largest number from 1 to `limit` that fits, if all smaller ones do; 0 for none."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _dropped(verdict: Verdict, limits_mb: F64) -> npt.NDArray[np.bool_]:
    """Whether the system drops pages of mapped weights."""
    mapped = verdict.private < verdict.total
    dropped: npt.NDArray[np.bool_] = mapped & (verdict.total > limits_mb * 1e6)
    return dropped


def _private(memory: Mapping[str, int]) -> int:
    return sum(memory.values()) - memory.get("weights (mapped)", 0)


def _as_options(level: str, overrides: Given) -> str:
    return " ".join([f"--level {level}", *(f"--{key} {value}" for key, value in overrides.items())])
