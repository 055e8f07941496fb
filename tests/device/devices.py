"""Artificial devices whose heat and speed can be computed by hand."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from halfbyte.device.cooling import Allocator, Link, Node, Thermal, Trip
from halfbyte.device.profile import Cluster, Profile, load_profile
from halfbyte.device.quantity import Quantity, Steps
from halfbyte.text.opening import open_model
from halfbyte.text.planning import LEVELS, Plan, plan

CAPACITY, RESISTANCE, IDLE = 20.0, 10.0, 0.5  # J/K, K/W, W
AIR = 25.0


def exactly(value: float) -> Quantity:
    """A number without a range."""
    return Quantity(value, value, value, "made up")


def cluster(name: str = "cores", node: str = "soc", **changes: Quantity) -> Cluster:
    """One core from 500 to 2000 MHz at 1 V, 1 mW per MHz, without leakage."""
    frequencies = tuple(500.0 + 100 * i for i in range(16))
    like = load_profile("pixel-6").clusters[0]
    output = replace(
        like, name=name, node=node, cores=exactly(1), frequencies_mhz=Steps(frequencies),
        voltages_mv=Steps((1000.0,) * 16), dynamic_power_uw_per_mhz_v2=exactly(1000),
        leakage_w=exactly(0),
    )  # fmt: skip
    return replace(output, **changes)


def one_node(
    clusters: Sequence[Cluster] | None = None,
    *,
    resistance: float = RESISTANCE,
    control: float = 40.0,
    sustainable: float = 1.0,
    trips: Sequence[Trip] = (),
) -> Profile:
    """A device with one node `soc`, whose heat and power are known exactly."""
    phone = load_profile("pixel-6")
    thermal = Thermal(
        exactly(AIR), {"soc": Node(exactly(CAPACITY))},
        (Link(("soc", "ambient"), exactly(resistance)),),
        Allocator("soc", exactly(control), exactly(sustainable)), tuple(trips),
    )  # fmt: skip
    power = replace(
        phone.power, node="soc", idle_w=exactly(IDLE), memory_pj_per_byte=exactly(0)
    )  # fmt: skip
    return replace(
        phone, clusters=tuple(clusters or [cluster()]), thermal=thermal, power=power
    )  # fmt: skip


def small_plan(path: Path) -> Plan:
    """The program of a model file, packed."""
    return plan(open_model(path), LEVELS["baseline"])


def program(folder: Path, name: str, script: str) -> str:
    """The path of a shell script of this name, whose own commands are those of the system."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\nPATH={os.defpath}:/usr/bin:/bin\n{script}\n")
    path.chmod(0o755)
    return str(path)
