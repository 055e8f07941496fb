"""Tokens per second of a planned model on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from halfbyte.device.cost import F64, Cost, Rates
from halfbyte.device.profile import Cluster, Profile
from halfbyte.device.quantity import Quantity
from halfbyte.planning import Plan

_FAST = 0.3  # of the fastest core: slower ones would hold the others back more than they help


@dataclass(frozen=True)
class Draws:
    """Where uncertain numbers are drawn from: `count` values of each, or medians alone."""

    random: np.random.Generator | None = None
    count: int = 1

    def __call__(self, quantity: Quantity) -> F64:
        """[count] values."""
        return quantity.draw(self.random, self.count)


@dataclass(frozen=True)
class Cores:
    """Cores of a cluster that compute, with what they do in a cycle, for each draw."""

    cluster: Cluster
    count: int
    int8: F64
    float32: F64

    @property
    def highest(self) -> float:
        """The highest frequency, in Hz."""
        return self.cluster.frequencies_mhz.values[-1] * 1e6


def fast_cores(profile: Profile) -> int:
    """Cores that are not much slower than the fastest ones, as halfbyte takes by default."""
    speeds = [c.frequencies_mhz.values[-1] * c.int8_ops_per_cycle.value for c in profile.clusters]
    pairs = zip(profile.clusters, speeds, strict=True)
    return sum(int(c.cores.value) for c, speed in pairs if speed >= _FAST * max(speeds))


def middle(plan: Plan) -> int:
    """The middle of the context, whose speed stands for all of it."""
    return plan.program.sizes["position"].maximum // 2


class Processor:
    """What a device's cores can do at given frequencies.

    Parameters
    ----------
    threads : int
        Cores that compute, the fastest clusters' first.
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
        self._launch = draws(profile.overhead.launch_us) * 1e-6
        self._call = draws(profile.overhead.call_us) * 1e-6

    def rates(
        self,
        frequencies: Sequence[F64] | None = None,
        counts: Sequence[npt.NDArray[np.intp]] | None = None,
    ) -> Rates:
        """What they do in a second at these frequencies (Hz [draws], for each of `used`).

        Without them, at the highest. A core that runs slower also reads memory slower. `counts`
        [draws], for each of `used`, are cores that compute, where not all of them do.
        """
        if frequencies is None:
            frequencies = [np.full_like(self._call, cores.highest) for cores in self.used]
        if counts is None:
            counts = [np.full(self._call.shape, cores.count) for cores in self.used]
        int8, float32, memory = np.zeros((3, *self._call.shape))
        slowest = np.ones_like(self._call)
        for cores, count, hertz in zip(self.used, counts, frequencies, strict=True):
            int8 += count * cores.int8 * hertz
            float32 += count * cores.float32 * hertz
            share = hertz / cores.highest
            memory += count * self._core_bandwidth * share
            slowest = np.where(count > 0, np.minimum(slowest, share), slowest)
        return Rates(
            int8, float32, np.minimum(memory, self._bandwidth),
            self._launch / slowest, self._call / slowest,
        )  # fmt: skip


class Speed:
    """Seconds of a model's runs on a device.

    Parameters
    ----------
    position : int
        Tokens in the context while a token is decoded.
    prompt : int
        Tokens of a prompt, processed in as large batches as the plan allows.
    from_storage : bool, optional
        Weights are read in every run; by default those that are streamed.
    """

    def __init__(
        self,
        plan: Plan,
        profile: Profile,
        draws: Draws,
        *,
        position: int = 256,
        prompt: int = 128,
        from_storage: bool | None = None,
    ) -> None:
        program, measured = plan.program, profile.kernels
        from_storage = plan.reader is not None if from_storage is None else from_storage
        batch, context = program.sizes["n"].maximum, program.sizes["position"].maximum
        self.batch = min(prompt, batch, context)
        position = min(position, context - 1)
        held = plan.memory["weights (packed)"] + plan.memory["weights (mapped)"]
        whole = held + plan.memory["KV cache"]
        self.cached = held > 0 and whole <= profile.memory.cache_mb.value * 1e6
        self.token, self.prompt = (
            Cost(
                program,
                {"n": n, "position": at, "rows": 1},
                measured,
                to_pack=plan.to_pack,
                cached=self.cached,
                random=draws.random,
                draws=draws.count,
            )
            for n, at in ((1, position), (self.batch, 0))
        )
        self._storage = draws(profile.memory.storage_gb_s) * 1e9
        self._streamed = self.token.weight_bytes if from_storage else 0

    @property
    def storage_seconds(self) -> F64:
        """Seconds [draws] in which a run's streamed weights are read, while others multiply."""
        found: F64 = self._streamed / self._storage
        return found

    def token_seconds(self, rates: Rates) -> F64:
        """Seconds [draws] of one token."""
        return np.maximum(self.token.seconds(rates), self.storage_seconds)

    def prompt_seconds(self, rates: Rates) -> F64:
        """Seconds [draws] of each token of a prompt."""
        whole = np.maximum(self.prompt.seconds(rates), self.storage_seconds)
        found: F64 = whole / self.batch
        return found
