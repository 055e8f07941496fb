"""Whether a language model fits a device: the memory of each level, and what would fit.

`halfbyte.device.graphs` is the counterpart for graphs. The fitters share no base class, since
levels, contexts and weight types are tried here, and input sizes and rewritten graphs there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from halfbyte.device.profile import Profile
from halfbyte.device.room import Fit, Room, Spread, Verdict, largest
from halfbyte.device.smaller import smaller_types
from halfbyte.device.speed import Speed
from halfbyte.errors import HalfbyteError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text import footprint
from halfbyte.text.planning import LEVELS, Given, Plan, Settings, plan, settings_of

_STEP = 64  # tokens: suggested contexts are multiples of it
_HEADER_BYTES = 40  # per token of a GGUF file's vocabulary: its text, type and merges


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


def _as_options(level: str, overrides: Given) -> str:
    return " ".join([f"--level {level}", *(f"--{key} {value}" for key, value in overrides.items())])
