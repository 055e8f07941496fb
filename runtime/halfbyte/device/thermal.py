"""Lumped heat: nodes with heat capacities, joined by thermal resistances, in air.

For each node, in kelvins, joules and watts: C dT/dt = P + sum of G (T_other - T) + g (T_air - T).
All arrays have a leading axis of draws, whose parameters differ. With x = sqrt(C) T the matrix is
symmetric, so its eigenvalues are real and not negative: modes decay independently, and a step of
any length is exact while powers and the air are constant (zero-order hold), or while prescribed
temperatures are linear (first-order hold). Nothing grows, whatever the step.

Power that depends on temperature (leakage) is not part of the matrix. Callers evaluate it at the
temperatures of a step's beginning and hold it over the step, a first-order splitting: its error is
proportional to the step. If leakage grows faster with temperature than the heat that flows off,
there is no steady state; this module cannot detect that, so callers must check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from halfbyte.device.propagators import Floats, propagators, times
from halfbyte.errors import ThermalError

AMBIENT = "ambient"  # the air's name as an end of a link


@dataclass(frozen=True)
class Network:
    """Nodes, their `capacities` [draws, n] in J/K, and their links.

    `conductances` [draws, n, n] in W/K is symmetric with a zero diagonal, `to_ambient` [draws, n].
    Raises `ThermalError` for impossible values: a capacity that is not positive, a negative
    conductance (temperatures would diverge), or a number that is not finite.
    """

    nodes: tuple[str, ...]
    capacities: Floats
    conductances: Floats
    to_ambient: Floats

    def __post_init__(self) -> None:
        n, draws = len(self.nodes), len(self.capacities)
        if not n or len(set(self.nodes) | {AMBIENT}) != n + 1:
            raise ThermalError(f"nodes: expected different names, found {', '.join(self.nodes)}")
        expected = {"capacities": (draws, n), "conductances": (draws, n, n)}
        for name, shape in {**expected, "to_ambient": (draws, n)}.items():
            values = np.asarray(getattr(self, name), np.float64)
            if values.shape != shape:
                raise ThermalError(f"{name}: expected shape {shape}, found {values.shape}")
            object.__setattr__(self, name, values)
        _refuse("heat capacity", ~(self.capacities > 0), self.capacities, self.nodes, "> 0 J/K")
        across = self.conductances.reshape(draws, -1)
        pairs = [f"{a}-{b}" for a in self.nodes for b in self.nodes]
        _refuse("conductance", ~(across >= 0), across, pairs, ">= 0 W/K")
        _refuse("conductance to the air", ~(self.to_ambient >= 0), self.to_ambient, self.nodes,
                ">= 0 W/K")  # fmt: skip
        transposed = self.conductances.swapaxes(1, 2)
        if np.any(self.conductances != transposed) or np.any(self._diagonal(self.conductances)):
            raise ThermalError("conductances: expected a symmetric matrix with a zero diagonal")

    @classmethod
    def from_resistances(
        cls,
        capacities: Mapping[str, ArrayLike],
        links: Iterable[tuple[str, str, ArrayLike]],
    ) -> Network:
        """A network from J/K by node and (node, node, K/W), each a number or [draws].

        One end may be "ambient"; parallel links between the same ends add up.
        """
        nodes, links = tuple(capacities), tuple(links)
        each = [*capacities.values(), *(resistance for _, _, resistance in links)]
        try:
            draws = np.broadcast_shapes((1,), *(np.shape(one) for one in each))
        except ValueError:
            raise ThermalError("capacities and resistances differ in their draws") from None
        if len(draws) != 1:
            raise ThermalError(f"expected numbers or one axis of draws, found shape {draws}")
        between, to_air = np.zeros((*draws, len(nodes), len(nodes))), np.zeros((*draws, len(nodes)))
        for a, b, resistance in links:
            ohms = np.broadcast_to(np.asarray(resistance, np.float64), draws)
            _refuse("thermal resistance", ~(ohms > 0)[:, None], ohms[:, None], [f"{a}-{b}"],
                    "> 0 K/W")  # fmt: skip
            if a == b or not {a, b} <= {*nodes, AMBIENT}:
                raise ThermalError(f"link {a}-{b}: expected two of {', '.join(nodes)}, {AMBIENT}")
            if AMBIENT in (a, b):
                to_air[:, nodes.index(a if b == AMBIENT else b)] += 1 / ohms
                continue
            for i, j in ((a, b), (b, a)):
                between[:, nodes.index(i), nodes.index(j)] += 1 / ohms
        stacked = [np.broadcast_to(np.asarray(one, np.float64), draws) for one in
                   capacities.values()]  # fmt: skip
        return cls(nodes, np.stack(stacked, axis=1), between, to_air)

    @property
    def laplacian(self) -> Floats:
        """[draws, n, n] in W/K: times the nodes' kelvins above air, the heat that flows off."""
        flow = -self.conductances
        self._diagonal(flow)[:] = self.conductances.sum(axis=2) + self.to_ambient
        return flow

    @staticmethod
    def _diagonal(matrices: Floats) -> Floats:
        diagonal: Floats = np.einsum("dii->di", matrices)  # a view
        return diagonal

    def stored_heat(self, temperatures: ArrayLike) -> Floats:
        """Joules [draws] above those at 0 degrees Celsius."""
        heat: Floats = (self.capacities * _finite("temperatures", temperatures)).sum(axis=-1)
        return heat

    def steady(self, power: ArrayLike, ambient: ArrayLike) -> Floats:
        """Steady temperatures [draws, n] at watts [draws, n] in air of `ambient` (a number or
        [draws]); raises `ThermalError` for a node without a way to the air, which warms forever."""
        reached = self.to_ambient > 0
        for _ in self.nodes:
            reached = reached | np.any((self.conductances > 0) & reached[:, None, :], axis=2)
        if not reached.all():
            insulated = [name for i, name in enumerate(self.nodes) if not reached[:, i].all()]
            raise ThermalError(f"insulated: {', '.join(insulated)} without a way to the air has no "
                               "steady temperature")  # fmt: skip
        watts = np.broadcast_to(_finite("power", power), self.capacities.shape)
        above = np.linalg.solve(self.laplacian, watts[..., None])[..., 0]
        return above + _column(ambient)

    def stepper(self, dt: float) -> Stepper:
        """A stepper that advances all draws by `dt` seconds at once."""
        return Stepper(self, dt)

    def driven(self, names: Sequence[str], dt: float) -> Driven:
        """The rest of the network, with prescribed temperatures of `names`."""
        return Driven(self, tuple(names), dt)


class Stepper:
    """Steps of one length, exact while powers and the air are constant."""

    def __init__(self, network: Network, dt: float) -> None:
        self.network, self.dt = network, _positive(dt)
        decay, self._gain, sums, ramp = propagators(network.capacities, network.laplacian, self.dt)
        # Draws come last, where NumPy is fastest: [n, 2 n, draws] times kelvins above air and watts
        after = np.concatenate([decay, self._gain], 2)
        self._after = np.ascontiguousarray(after.transpose(1, 2, 0))
        kelvin_seconds = np.concatenate([sums, ramp], 2)
        self._heat = np.einsum("di,dij->jd", network.to_ambient, kelvin_seconds)

    def gain(self, node: int) -> Floats:
        """Kelvins [draws] by which a watt at a node warms it within the step."""
        return self._gain[:, node, node]

    def step(self, temperatures: ArrayLike, power: ArrayLike, ambient: ArrayLike) -> Floats:
        """Temperatures [draws, n] after `dt` at `power` [draws, n] watts; `ambient` is a number or
        [draws]. Computed as differences from the air, which keeps digits."""
        return self._stepped(self._state(temperatures, power, ambient), ambient)

    def advance(
        self, temperatures: ArrayLike, power: ArrayLike, ambient: ArrayLike
    ) -> tuple[Floats, Floats]:
        """Temperatures as of `step`, and Joules [draws] that flow to the air in that step: the
        exact integral."""
        state = self._state(temperatures, power, ambient)
        heat: Floats = np.einsum("jd,jd->d", self._heat, state)
        return self._stepped(state, ambient), heat

    def _state(self, temperatures: ArrayLike, power: ArrayLike, ambient: ArrayLike) -> Floats:
        """Kelvins above the air and watts, [2 n, draws]."""
        (draws, n) = shape = self.network.capacities.shape
        above = _finite("temperatures", temperatures) - _column(ambient)
        state = np.empty((2 * n, draws))
        state[:n] = np.broadcast_to(above, shape).T
        state[n:] = np.broadcast_to(_finite("power", power), shape).T
        return state

    def _stepped(self, state: Floats, ambient: ArrayLike) -> Floats:
        above: Floats = np.einsum("ijd,jd->id", self._after, state)
        return above.T + _column(ambient)


class Driven:
    """A network in which some nodes are prescribed, linear between samples.

    `free` are the names of the others.
    """

    def __init__(self, network: Network, names: tuple[str, ...], dt: float) -> None:
        if unknown := [name for name in names if name not in network.nodes]:
            raise ThermalError(f"driven: no node {', '.join(unknown)} in the network")
        if not (rest := [i for i, name in enumerate(network.nodes) if name not in names]):
            raise ThermalError("driven: no node is left to compute")
        prescribed = [network.nodes.index(name) for name in names]
        self.network, self.dt = network, _positive(dt)
        self.free = tuple(network.nodes[i] for i in rest)
        capacities, self._to_air = network.capacities[:, rest], network.to_ambient[:, rest]
        self._inwards = network.conductances[:, rest][:, :, prescribed]
        flow = network.laplacian[:, rest][:, :, rest]
        self._decay, self._gain, _, ramp = propagators(capacities, flow, self.dt)
        # For a ramp over the step: the weight of its end; its beginning has the rest
        self._end = ramp / self.dt

    def run(
        self, start: ArrayLike, prescribed: ArrayLike, ambient: ArrayLike, power: ArrayLike = 0.0
    ) -> Floats:
        """Temperatures [samples, draws, free] from `start` [draws, free].

        `prescribed` has shape [samples, names]; `ambient`, a number, [draws] or [samples,
        draws], and `power` [samples, draws, free] in watts hold from a sample to the next.
        """
        forced = _finite("prescribed temperatures", prescribed)
        if forced.ndim != 2 or forced.shape[1] != self._inwards.shape[2] or len(forced) < 1:
            names = self._inwards.shape[2]
            raise ThermalError(f"driven: expected [samples, {names}], found {forced.shape}")
        samples, (draws, free) = len(forced), self._to_air.shape
        air = np.broadcast_to(_finite("ambient", ambient), (samples, draws))
        watts = np.broadcast_to(_finite("power", power), (samples, draws, free))
        inwards = np.einsum("dfp,sp->sdf", self._inwards, forced)
        held = inwards + watts + self._to_air * air[..., None]
        push = np.einsum("dij,sdj->sdi", self._gain, held[:-1])
        push += np.einsum("dij,sdj->sdi", self._end, np.diff(inwards, axis=0))
        result = np.empty((samples, draws, free))
        result[0] = _finite("temperatures", start)
        for i in range(samples - 1):
            result[i + 1] = times(self._decay, result[i]) + push[i]
        return result


class Trip:
    """A trip point: the fraction of the highest frequency that a temperature allows, for all draws.

    The fraction is 1 below `start_c`, `floor` at `full_c` and above, and linear between. While the
    temperature T rises, the fraction follows it. When T falls, the fraction first stays, until T is
    `hysteresis_k` below its highest value; then it follows T + hysteresis_k. When T rises again,
    the fraction stays until T reaches the effective temperature. In short, with m as the effective
    temperature (like the play of a gear): m = max(T, min(previous m, T + hysteresis_k)), first T.
    """

    def __init__(
        self, start_c: ArrayLike, full_c: ArrayLike, floor: ArrayLike, hysteresis_k: ArrayLike
    ) -> None:
        self.start_c, self.full_c = _finite("start_c", start_c), _finite("full_c", full_c)
        self.floor, self.hysteresis_k = _finite("floor", floor), _finite("hysteresis", hysteresis_k)
        if np.any(self.full_c <= self.start_c):
            raise ThermalError("trip: expected start_c below full_c")
        if np.any((self.floor < 0) | (self.floor > 1) | (self.hysteresis_k < 0)):
            raise ThermalError("trip: expected a floor from 0 to 1 and a hysteresis of >= 0 K")
        self._counts: Floats = np.array(-np.inf)

    def update(self, temperature: ArrayLike) -> Floats:
        """The fraction [draws] at the new `temperature` [draws] of the node (Celsius)."""
        self._counts = self._counted(_finite("temperature", temperature))
        return self._fraction(self._counts)

    def ahead(self, temperature: Floats) -> Floats:
        """The fraction that each `temperature` [..., draws] would give, without reaching it."""
        return self._fraction(self._counted(temperature))

    def _counted(self, now: Floats) -> Floats:
        return np.asarray(np.maximum(now, np.minimum(self._counts, now + self.hysteresis_k)))

    def _fraction(self, counted: Floats) -> Floats:
        way = np.clip((counted - self.start_c) / (self.full_c - self.start_c), 0, 1)
        return np.asarray(1 - way * (1 - self.floor))


def leakage(w_at_25: ArrayLike, doubling_k: ArrayLike, temperature: ArrayLike) -> Floats:
    """Watts that leak at `temperature`: `w_at_25` at 25 C, twice that `doubling_k` above."""
    doubling = _finite("doubling_k", doubling_k)
    if np.any(doubling <= 0):
        raise ThermalError(f"leakage: expected doubling_k > 0, found {doubling.min():g}")
    exponent = (_finite("temperature", temperature) - 25.0) / doubling
    return np.asarray(_finite("w_at_25", w_at_25) * np.exp2(exponent))


def _column(ambient: ArrayLike) -> Floats:
    """The air as an operand to [draws, n]."""
    return _finite("ambient", ambient)[..., None]


def _finite(what: str, values: ArrayLike) -> Floats:
    array = np.asarray(values, np.float64)
    if not np.isfinite(array).all():
        raise ThermalError(f"{what}: expected finite numbers, found NaN or infinity")
    return array


def _positive(dt: float) -> float:
    if not (np.isfinite(dt) and dt > 0):
        raise ThermalError(f"expected a step of > 0 s, found {dt}")
    return float(dt)


def _refuse(
    what: str, bad: NDArray[np.bool_], values: Floats, names: Sequence[str], expected: str
) -> None:
    """Raise for the first value [draws, names] that is bad or not finite."""
    wrong = np.argwhere(bad | ~np.isfinite(values))
    if len(wrong):
        draw, i = wrong[0]
        raise ThermalError(
            f"{what} of {names[i]}: expected {expected}, found {values[draw, i]:g} (draw {draw})"
        )
