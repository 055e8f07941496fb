"""The part of a device profile that a fit determines, as quantities, as TOML and as a profile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from tools.thermal.fitting import CAPACITIES, CONDUCTANCES, DIE_S, DIES
from tools.thermal.traces import Recording

from halfbyte.device.cooling import Link, Node
from halfbyte.device.profile import Profile
from halfbyte.device.quantity import Draws, Quantity
from halfbyte.errors import HalfbyteError

Floats = NDArray[np.float64]

_DIGITS = 4
_DIE_WITHIN = 0.5  # the range of a die's heat capacity, relative
_WIDEST = 0.9  # of any
# Values, as in GUESS, of the battery
OF_BATTERY = np.array(
    [name == "battery" for name in CAPACITIES] + ["battery" in ends for ends in CONDUCTANCES]
    + [False]
)  # fmt: skip


@dataclass(frozen=True)
class Fit:
    """`values` as in GUESS, each with its relative standard deviation if the others are known, and
    what the ranges of the battery's and of all others are multiplied by (see judging.py)."""

    values: Floats
    within: Floats
    widen: tuple[float, float] = (1.0, 1.0)

    @property
    def ranges(self) -> Floats:
        """Half widths of the ranges, relative."""
        # the standard deviation of a triangular distribution is its half width over the root of 6
        factors = np.where(OF_BATTERY, *self.widen)
        return np.asarray(np.minimum(np.sqrt(6.0) * factors * self.within, _WIDEST))

    def quantities(self, source: str) -> tuple[dict[str, Quantity], list[Quantity], Quantity]:
        """Heat capacities by node in J/K, resistances of the links in K/W, and watts at rest."""
        wide, count = self.ranges, len(CAPACITIES)
        rest = _around(float(self.values[-1]), float(wide[-1]), source)
        links = [
            _around(1 / float(value), float(share), source)
            for value, share in zip(self.values[count:-1], wide[count:-1], strict=True)
        ]
        why = f"a die follows its power within {DIE_S:g} s, by the first second of a load"
        nodes = {
            die: _around(DIE_S / link.value, _DIE_WITHIN, assumed=why)
            for (die, _), link in zip(CONDUCTANCES, links, strict=False) if die in DIES
        }  # fmt: skip
        for i, name in enumerate(CAPACITIES):
            nodes[name] = _around(float(self.values[i]), float(wide[i]), source)
        return nodes, links, rest

    def draw(self, random: np.random.Generator, count: int) -> Floats:
        """Values [count, as in GUESS] of devices, drawn from the ranges as `simulate` draws."""
        nodes, links, rest = self.quantities("drawn")
        each = [nodes[name].draw(random, count) for name in CAPACITIES]
        each += [1 / link.draw(random, count) for link in links]
        return np.stack([*each, rest.draw(random, count)], axis=1)


def _around(value: float, share: float, source: str = "", assumed: str = "") -> Quantity:
    """The value with a range of as much on both sides, so that it is the median of draws."""
    low, middle, high = (
        float(f"{one:.{_DIGITS}g}") for one in (value * (1 - share), value, value * (1 + share))
    )
    return Quantity(middle, low, high, source, assumed)


def source_of(recordings: Sequence[Recording]) -> str:
    """Where fitted numbers come from."""
    names = ", ".join(r.path.name.encode("utf-8", "replace").decode() for r in recordings)
    return (
        f"fitted to {names} by tools/fit_thermal.py; the recordings hold no watts: a phone's mass "
        "and surface set the scale"
    )


def toml(fit: Fit, recordings: Sequence[Recording]) -> str:
    """TOML tables that replace a device's nodes and links."""
    nodes, links, rest = fit.quantities(source_of(recordings))
    lines = [
        "# In place of all [thermal.nodes] and [[thermal.links]] of a profile. The board (chassis) "
        f"takes {rest.value:g} W at rest",
        f"# ({rest.span}): power.idle_w, with power.node = chassis.",
    ]
    for name, capacity in nodes.items():
        lines += [f"[thermal.nodes.{name}]", f"heat_capacity_j_k = {_entry(capacity)}", ""]
    for (a, b), resistance in zip(CONDUCTANCES, links, strict=True):
        lines += ["[[thermal.links]]", f'between = ["{a}", "{b}"]']
        lines += [f"resistance_k_w = {_entry(resistance)}", ""]
    return "\n".join(lines)


def _entry(number: Quantity) -> str:
    kind = "source" if number.source else "assumed"
    why = json.dumps(number.source or number.assumed, ensure_ascii=False)
    return (
        f"{{ value = {number.value:.{_DIGITS}g}, range = [{number.low:.{_DIGITS}g}, "
        f"{number.high:.{_DIGITS}g}], {kind} = {why} }}"
    )


def with_fit(profile: Profile, fit: Fit) -> Profile:
    """The profile with the fitted network and power at rest."""
    nodes, links, rest = fit.quantities("fitted")
    thermal = replace(
        profile.thermal,
        nodes={name: Node(capacity) for name, capacity in nodes.items()},
        links=tuple(Link(ends, link) for ends, link in zip(CONDUCTANCES, links, strict=True)),
    )
    return replace(profile, thermal=thermal, power=replace(profile.power, idle_w=rest))


def drawn_of(profile: Profile, draws: Draws) -> Floats:
    """Values [draws, as in GUESS] of a profile that has this network.

    Raises
    ------
    HalfbyteError
        It has other nodes or links.
    """
    thermal = profile.thermal
    links = {link.between: link.resistance_k_w for link in thermal.links}
    if set(thermal.nodes) != {*DIES, *CAPACITIES} or set(links) != set(CONDUCTANCES):
        raise HalfbyteError(
            f"{profile.name}: expected the nodes {', '.join((*DIES, *CAPACITIES))} and their "
            f"links, found {', '.join(thermal.nodes)}"
        )
    each = [draws(thermal.nodes[name].heat_capacity_j_k) for name in CAPACITIES]
    each += [1 / draws(links[ends]) for ends in CONDUCTANCES]
    return np.stack([*each, draws(profile.power.idle_w)], axis=1)
