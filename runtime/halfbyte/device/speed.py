"""The time that a token of a language model, or another unit of work, takes on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from halfbyte.core.passes.stream_weights import streamed_bytes
from halfbyte.device.cost import F64, Cost, Rates
from halfbyte.device.profile import Cluster, Profile
from halfbyte.device.quantity import Draws, Multiple, Quantity
from halfbyte.text.planning import Plan

Flags = bool | npt.NDArray[np.bool_]  # of all draws, or of each

HELD, PROMPT = 256, 128  # tokens in the context, and of a prompt, for which a speed is given
_CHUNKS = 4  # as in runtime/kernels/run.c
# Microseconds of an instruction for each doubling of the threads, from small models with many
# threads in benches/published.toml
_MEETING = Multiple.of(Quantity(1.2, 0.4, 3.6))
_FAST = 0.3  # of the fastest core: slower ones would slow the others down more than they help


@dataclass(frozen=True)
class Cores:
    """The computing cores of a cluster, with their operations per cycle, for each draw."""

    cluster: Cluster
    count: int
    int8: F64
    float32: F64

    @property
    def highest(self) -> float:
        """The highest frequency, in Hz."""
        return self.cluster.frequencies_mhz.values[-1] * 1e6


def _rate(cluster: Cluster) -> float:
    """Integer operations of a core in a microsecond, at the highest frequency."""
    return cluster.frequencies_mhz.values[-1] * cluster.int8_ops_per_cycle.value


def fast_cores(profile: Profile) -> int:
    """The number of cores not much slower than the fastest: halfbyte's default for threads."""
    least = _FAST * max(map(_rate, profile.clusters))
    return sum(int(c.cores.value) for c in profile.clusters if _rate(c) >= least)


class Processor:
    """The rates of a device's cores at given frequencies.

    Parameters
    ----------
    threads : int
        Number of computing cores, taken from the fastest clusters first.
    """

    def __init__(self, profile: Profile, threads: int, draws: Draws) -> None:
        self.used: list[Cores] = []
        left = threads
        for cluster in profile.clusters:
            count = min(left, int(cluster.cores.value))
            if count:
                per_cycle = draws(cluster.int8_ops_per_cycle), draws(cluster.float32_ops_per_cycle)
                self.used.append(Cores(cluster, count, *per_cycle))
                left -= count
        memory = profile.memory
        self._bandwidth = draws(memory.bandwidth_gb_s) * 1e9
        self._core_bandwidth = np.minimum(
            draws(memory.core_bandwidth_gb_s) * 1e9, self._bandwidth
        )  # fmt: skip
        fastest = max(map(_rate, profile.clusters))
        self._idle = np.ones_like(self._bandwidth)  # share of the memory's time, if all cores read
        for cluster in profile.clusters:
            busy = self._core_bandwidth / self._bandwidth * _rate(cluster) / fastest
            self._idle *= (1 - busy) ** int(cluster.cores.value)
        self._meeting = draws(_MEETING) * 1e-6
        self._launch = draws(profile.overhead.launch_us) * 1e-6
        self._call = draws(profile.overhead.call_us) * 1e-6

    def rates(
        self,
        frequencies: Sequence[F64] | None = None,
        counts: Sequence[npt.NDArray[np.intp]] | None = None,
    ) -> Rates:
        """The rates at these frequencies (Hz [draws], for each of `used`), by default the highest.

        A slower core also reads memory more slowly, and one with fewer pipes has fewer cache lines
        outstanding. Cores leave the memory idle independently of each other, and all together read
        at its bandwidth. Threads meet for each instruction, in a time that grows with each doubling
        of them, unless none is worth sharing. They claim chunks of its work, at least `_CHUNKS` for
        each; at its end they wait for the last chunk, on average half of one on the slowest core.
        `counts` [draws], for each of `used`, are the cores that compute, by default all.
        """
        if frequencies is None:
            frequencies = [np.full_like(self._call, cores.highest) for cores in self.used]
        if counts is None:
            counts = [np.full(self._call.shape, cores.count) for cores in self.used]
        int8, float32, memory, computing = np.zeros((4, *self._call.shape))
        slowest, idle = np.ones((2, *self._call.shape))
        least = np.full_like(self._call, np.inf)
        fastest = self.used[0].int8 * self.used[0].highest
        for cores, count, hertz in zip(self.used, counts, frequencies, strict=True):
            int8 += count * cores.int8 * hertz
            float32 += count * cores.float32 * hertz
            share = hertz / cores.highest
            reading = self._core_bandwidth * np.minimum(cores.int8 * hertz / fastest, 1)
            memory += count * reading
            idle *= (1 - reading / self._bandwidth) ** count
            computing += count
            slowest = np.where(count > 0, np.minimum(slowest, share), slowest)
            least = np.where(count > 0, np.minimum(least, cores.int8 * hertz), least)
        together = self._bandwidth * (1 - idle) / (1 - self._idle)
        meeting = self._meeting * np.log2(np.maximum(computing, 1))
        return Rates(
            int8, float32, np.minimum(memory, together), computing,
            self._launch / slowest, self._call / slowest,
            (int8 / least - 1) / (2 * _CHUNKS * computing), meeting / slowest,
        )  # fmt: skip


@dataclass(frozen=True)
class Pass:
    """The cost of a unit of work: a token of an answer or a prompt, or a graph's run.

    Attributes
    ----------
    cost : Cost
        Cost of one pass through the program.
    storage_s : float64 [draws]
        Seconds per unit of reading weights from storage, which overlaps with computing.
    units : int
        Units that a pass computes at once.
    """

    cost: Cost
    storage_s: F64
    units: int = 1

    def computing(self, rates: Rates) -> F64:
        """Seconds [draws] per unit in which cores are busy."""
        seconds: F64 = self.cost.seconds(rates) / self.units
        return seconds

    def seconds(self, rates: Rates) -> F64:
        """Seconds [draws] per unit."""
        return np.maximum(self.computing(rates), self.storage_s)

    @property
    def bytes_read(self) -> float:
        """Bytes read from memory per unit."""
        return self.cost.bytes_read / self.units


class Task(Protocol):
    """Work that a device repeats: a model's `Tokens`, or a graph's `Runs`."""

    @property
    def unit(self) -> str:
        """The name of a unit of work: "token" or "run"."""

    def passes(self, profile: Profile, draws: Draws) -> tuple[Pass, Pass | None]:
        """The pass of a unit on that device, and of a token of a prompt if there are prompts."""


class Speed:
    """A language model's passes on a device: of a `token` of an answer, and of a `prompt`.

    Parameters
    ----------
    position : int
        Tokens in the context while a token is decoded.
    prompt : int
        Tokens of a prompt, processed in the largest batches that the plan allows.
    from_storage : bool or bool [draws], optional
        Whether weights are read from storage in every run; by default if they are streamed.
    """

    def __init__(
        self,
        plan: Plan,
        profile: Profile,
        draws: Draws,
        *,
        position: int = HELD,
        prompt: int = PROMPT,
        from_storage: Flags | None = None,
    ) -> None:
        program, measured = plan.program, profile.fractions
        from_storage = plan.reader is not None if from_storage is None else from_storage
        batch, context = program.sizes["n"].maximum, program.sizes["position"].maximum
        batch = min(prompt, batch, context)
        position = min(position, context - 1)
        kinds = ("packed", "mapped", "converted", "copied")
        held = sum(plan.memory[f"weights ({kind})"] for kind in kinds)
        whole = held + plan.memory["KV cache"] + plan.memory.get("states", 0)
        cached = held > 0 and whole <= profile.memory.cache_mb.value * 1e6
        token, prefill = (
            Cost(
                program,
                {"n": n, "position": at, "rows": 1},
                measured,
                to_pack=plan.to_pack,
                cached=cached,
                draws=draws,
            )
            for n, at in ((1, position), (batch, 0))
        )
        storage = draws(profile.memory.storage_gb_s) * 1e9
        read = streamed_bytes(program) or token.weight_bytes
        storage_s = np.where(from_storage, read, 0) / storage
        self.token, self.prompt = Pass(token, storage_s), Pass(prefill, storage_s / batch, batch)


@dataclass(frozen=True)
class Tokens:
    """Tokens of a language model's answers, at the middle of its context.

    Weights that are streamed, or dropped by the system, are read from storage for each token.
    """

    plan: Plan
    from_storage: Flags | None = None
    unit: ClassVar[str] = "token"

    def passes(self, profile: Profile, draws: Draws) -> tuple[Pass, Pass]:
        """The passes of a token of an answer and of a prompt."""
        middle = self.plan.program.sizes["position"].maximum // 2
        speed = Speed(
            self.plan, profile, draws, position=middle, from_storage=self.from_storage
        )  # fmt: skip
        return speed.token, speed.prompt
