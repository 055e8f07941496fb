"""The thermal tables of a profile: heat capacities, links, and limits of temperature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from halfbyte.device import schema
from halfbyte.device.quantity import Quantity
from halfbyte.device.schema import Text, Where, number

AMBIENT = "ambient"  # the end of a link that is the air

_Celsius = Annotated[Quantity, number(-60, 250)]


@dataclass(frozen=True)
class Node:
    """A part of the device that has one temperature."""

    heat_capacity_j_k: Annotated[Quantity, number(1e-3, 1e6)]


@dataclass(frozen=True)
class Link:
    """Heat flows between two nodes, or from one to the air."""

    between: Annotated[tuple[str, str], schema.pair]
    resistance_k_w: Annotated[Quantity, number(1e-4, 1e5)]


@dataclass(frozen=True)
class Trip:
    """A trip point: from `start_c` to `full_c`, frequencies fall from the highest to `floor` of it.

    They rise again once the node is `hysteresis_k` cooler.
    """

    node: Annotated[str, schema.name]
    start_c: _Celsius
    full_c: _Celsius
    floor: Annotated[Quantity, number(0, 1)]
    hysteresis_k: Annotated[Quantity, number(0, 100)]

    def check(self, where: Where) -> None:
        """All of the range of `start_c` lies below the range of `full_c`."""
        if self.start_c.high >= self.full_c.low:
            expected = f"less than full_c, {self.full_c.low:g}"
            raise where.at("start_c").error(expected, Text(f"{self.start_c.high:g}"))


@dataclass(frozen=True)
class Allocator:
    """Linux's power allocator, which holds `node` at `control_c`; `sustainable_w` keep it there."""

    node: Annotated[str, schema.name]
    control_c: _Celsius
    sustainable_w: Annotated[Quantity, number(0.01, 1e4)]


@dataclass(frozen=True)
class Thermal:
    """Nodes, links and limits of temperature.

    `calibrated` says by which recordings the ranges were chosen so that bands of temperature cover
    what was measured; without it, they are guesses.
    """

    ambient_c: _Celsius
    nodes: Annotated[Mapping[str, Node], schema.named(Node, 1, 32)]
    links: Annotated[tuple[Link, ...], schema.tables(Link, 1, 256)]
    allocator: Allocator
    trips: Annotated[tuple[Trip, ...], schema.tables(Trip, 0, 32)] = ()
    calibrated: Annotated[str | None, schema.text] = None

    def check(self, where: Where) -> None:
        """All heat has a way to the air, and no limit is as cold as the air."""
        if AMBIENT in self.nodes:
            where = where.at("nodes").at(AMBIENT)
            raise where.error("another name: the air is not a node", AMBIENT)
        _check_links(self, where)
        known(self.allocator.node, self.nodes, where.at("allocator").at("node"))
        air = self.ambient_c.value
        for index, trip in enumerate(self.trips):
            known(trip.node, self.nodes, where.at("trips").item(index).at("node"))
            _above(where.at("trips").item(index).at("start_c"), trip.start_c, air)
        _above(where.at("allocator").at("control_c"), self.allocator.control_c, air)


def known(name: str, nodes: Mapping[str, Node], where: Where) -> None:
    """Raise `ProfileError` for a name that is not a node's."""
    if name not in nodes:
        raise where.error(f"one of the nodes {', '.join(nodes)}", name)


def _above(where: Where, limit: Quantity, air: float) -> None:
    if limit.value <= air:
        raise where.error(f"more than ambient_c, {air:g}", Text(f"{limit.value:g}"))


def _check_links(thermal: Thermal, where: Where) -> None:
    """Each link stands once, between different nodes; every node has a way to the air."""
    seen: set[frozenset[str]] = set()
    for index, link in enumerate(thermal.links):
        place = where.at("links").item(index).at("between")
        for name in link.between:
            if name != AMBIENT:
                known(name, thermal.nodes, place)
        ends = frozenset(link.between)
        if len(ends) == 1:
            raise place.error("two different nodes", Text(f"{link.between[0]} twice"))
        if ends in seen:
            raise place.error("each link once", Text(f"{' and '.join(link.between)} again"))
        seen.add(ends)
    cooled = {AMBIENT}
    while grown := {end for ends in seen if ends & cooled for end in ends} - cooled:
        cooled |= grown
    for name in thermal.nodes:
        if name not in cooled:
            linked = any(name in ends for ends in seen)
            actual = "links that do not lead there: it never cools" if linked else "no link"
            place = where.at("nodes").at(name)
            raise place.error(f"links from it to {AMBIENT}", Text(actual))
