"""The profile of a device: memory, processor, heat and power, each number with its origin.

A profile is a TOML file. Shipped profiles are in ``profiles/``, the user's own in `user_folder()`.
Units are in the keys: MB are 1e6 bytes, GB 1e9; temperatures are in degrees Celsius.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from halfbyte.device import schema
from halfbyte.device.cooling import Thermal, known
from halfbyte.device.kernels import INSTRUCTIONS, Kernel, arm_kernels, usual_kernels
from halfbyte.device.quantity import Quantity, Steps
from halfbyte.device.schema import Text, Where, number, numbers
from halfbyte.errors import ProfileError, nearest

KINDS = ("phone", "tablet", "board", "laptop", "machine")
_SHIPPED = Path(__file__).parent / "profiles"

_Megabytes = Annotated[Quantity, number(1, 1e8)]
_Rate = Annotated[Quantity, number(1e-3, 1e5)]  # GB/s
_Watts = Annotated[Quantity, number(0, 1e4)]


@dataclass(frozen=True)
class Memory:
    """Sizes and speeds of memory and storage.

    `app_mb` is what an app in the foreground may take, `tab_mb` a browser tab. `bandwidth_gb_s` is
    what all cores read together, `core_bandwidth_gb_s` a single one; `cache_mb` is what all share.
    """

    ram_mb: _Megabytes
    app_mb: _Megabytes
    tab_mb: _Megabytes
    bandwidth_gb_s: _Rate
    core_bandwidth_gb_s: _Rate
    storage_gb_s: _Rate
    cache_mb: Annotated[Quantity, number(1e-2, 1e5)]

    def check(self, where: Where) -> None:
        """An app gets at most the RAM, and one core reads no faster than all."""
        for key in ("app_mb", "tab_mb"):
            _at_most(where, key, getattr(self, key).high, "ram_mb", self.ram_mb.value)
        key, limit = "core_bandwidth_gb_s", self.bandwidth_gb_s.value
        _at_most(where, key, self.core_bandwidth_gb_s.value, "bandwidth_gb_s", limit)


@dataclass(frozen=True)
class Cluster:
    """Cores that share a clock; a profile lists the fastest first.

    A core at full load takes `dynamic_power_uw_per_mhz_v2` x MHz x V^2, as in Linux's energy model
    (`dynamic-power-coefficient` of a device tree). The cluster leaks `leakage_w` at 25 C and the
    highest voltage, twice that for each `leakage_doubling_k` above. Operations are the most that
    one core does in a cycle; a multiplication and an addition are two.
    """

    name: Annotated[str, schema.name]
    node: Annotated[str, schema.name]
    cores: Annotated[Quantity, number(1, 1024, whole=True)]
    frequencies_mhz: Annotated[Steps, numbers(1, 20_000)]
    voltages_mv: Annotated[Steps, numbers(50, 5_000)]
    dynamic_power_uw_per_mhz_v2: Annotated[Quantity, number(0.01, 1e6)]
    int8_ops_per_cycle: Annotated[Quantity, number(0.1, 1e5)]
    float32_ops_per_cycle: Annotated[Quantity, number(0.1, 1e5)]
    leakage_w: _Watts
    leakage_doubling_k: Annotated[Quantity, number(1, 1000)]

    def check(self, where: Where) -> None:
        """There is a voltage for each frequency, and each frequency stands once."""
        frequencies, voltages = self.frequencies_mhz.values, self.voltages_mv.values
        if len(voltages) != len(frequencies):
            expected = f"{len(frequencies)} numbers, as in frequencies_mhz"
            raise where.at("voltages_mv").error(expected, Text(f"{len(voltages)}"))
        for slower, faster in pairwise(frequencies):
            if slower == faster:
                raise where.at("frequencies_mhz").error("each once", Text(f"{faster:g} twice"))

    def operations(self, per_cycle: Quantity) -> float:
        """Operations/s of all its cores at the highest frequency."""
        return self.cores.value * self.frequencies_mhz.values[-1] * 1e6 * per_cycle.value

    @property
    def full_w(self) -> float:
        """Watts of all its cores at the highest frequency, without leakage."""
        volts = self.voltages_mv.values[-1] / 1e3
        each = self.dynamic_power_uw_per_mhz_v2.value * self.frequencies_mhz.values[-1] * volts**2
        return self.cores.value * each / 1e6


@dataclass(frozen=True)
class Overhead:
    """Time that each instruction of a program, and each call of one, takes besides its work."""

    launch_us: Annotated[Quantity, number(0, 1e6)]
    call_us: Annotated[Quantity, number(0, 1e7)]


@dataclass(frozen=True)
class Power:
    """Power besides computing (screen, radio, idle processor), and energy of reading memory.

    Both warm `node`.
    """

    node: Annotated[str, schema.name]
    idle_w: _Watts
    memory_pj_per_byte: Annotated[Quantity, number(0, 1e6)]


@dataclass(frozen=True)
class Battery:
    """Capacity, and the voltage when full."""

    capacity_wh: Annotated[Quantity, number(0.01, 1e5)]
    full_v: Annotated[Quantity | None, number(0.5, 1000)] = None


@dataclass(frozen=True)
class Profile:
    """A device; one without a battery runs on mains power.

    `kernels` are those measured on it, by kind; `halfbyte.device.kernels` has usual ones.
    `instructions` are Arm's for integer products: "i8mm" where SMMLA does twice the operations of
    SDOT, "dotprod", or "neon" without either; "dotprod-wide" for cores that decode eight or more
    instructions a cycle (Apple's, Oryon), which reach more of the peak.
    """

    name: Annotated[str, schema.name]
    title: Annotated[str, schema.text]
    kind: Annotated[str, schema.choice(*KINDS)]
    year: Annotated[int, schema.integer(1970, 2100)]
    memory: Memory
    clusters: Annotated[tuple[Cluster, ...], schema.tables(Cluster, 1, 16)]
    overhead: Overhead
    thermal: Thermal
    power: Power
    battery: Battery | None = None
    instructions: Annotated[str | None, schema.choice(*INSTRUCTIONS)] = None
    kernels: Annotated[Mapping[str, Kernel], schema.named(Kernel, 0, 256)] = field(
        default_factory=dict
    )

    def check(self, where: Where) -> None:
        """Clusters have different names, and all that takes power warms a node."""
        names = [cluster.name for cluster in self.clusters]
        for index, cluster in enumerate(self.clusters):
            place = where.at("clusters").item(index)
            if cluster.name in names[:index]:
                raise place.at("name").error("a name of its own", cluster.name)
            known(cluster.node, self.thermal.nodes, place.at("node"))
        known(self.power.node, self.thermal.nodes, where.at("power").at("node"))

    @property
    def fractions(self) -> Mapping[str, Kernel]:
        """What kernels reach on it, by kind, where that differs from the usual."""
        return {**arm_kernels(self.instructions), **self.kernels}

    @property
    def cores(self) -> int:
        """Cores of all clusters."""
        return sum(int(cluster.cores.value) for cluster in self.clusters)

    @property
    def int8_gops(self) -> float:
        """The peak of all cores on int8, in 1e9 operations/s."""
        return sum(c.operations(c.int8_ops_per_cycle) for c in self.clusters) / 1e9

    @property
    def float32_gops(self) -> float:
        """The peak of all cores on float32, in 1e9 operations/s."""
        return sum(c.operations(c.float32_ops_per_cycle) for c in self.clusters) / 1e9

    def numbers(self) -> Iterator[tuple[str, Quantity | Steps]]:
        """All numbers with their keys in the file."""
        yield from _numbers(self, "")

    def origins(self) -> dict[str, int]:
        """How many numbers have a source and how many are assumed, with the fractions of kernels
        that were not measured on the device."""
        used = {**usual_kernels(), **self.fractions}
        others = {kind: kernel for kind, kernel in used.items() if kind not in self.kernels}
        every = [number for _, number in (*self.numbers(), *_numbers(others, ""))]
        sourced = sum(bool(number.source) for number in every)
        return {"sourced": sourced, "assumed": len(every) - sourced}


# ---- of all fields ------------------------------------------------------------------------------


def _at_most(where: Where, key: str, value: float, other: str, limit: float) -> None:
    if value > limit:
        raise where.at(key).error(f"at most {other}, {limit:g}", Text(f"{value:g}"))


def _numbers(value: Any, key: str) -> Iterator[tuple[str, Quantity | Steps]]:
    match value:
        case Quantity() | Steps():
            yield key, value
        case tuple():
            for index, item in enumerate(value):
                yield from _numbers(item, f"{key}[{index}]")
        case Mapping():
            for name, item in value.items():
                yield from _numbers(item, f"{key}.{name}")
        case _ if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                name = f"{key}.{field.name}" if key else field.name
                yield from _numbers(getattr(value, field.name), name)


# ---- files ---------------------------------------------------------------------------------------


def user_folder() -> Path:
    """The folder of the user's own profiles, in the system's place for application data."""
    if sys.platform == "win32":
        chosen, default = os.environ.get("LOCALAPPDATA", ""), Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        chosen, default = "", Path.home() / "Library" / "Application Support"
    else:
        chosen, default = os.environ.get("XDG_DATA_HOME", ""), Path.home() / ".local" / "share"
    home = Path(chosen) if chosen and Path(chosen).is_absolute() else default
    return home / "halfbyte" / "devices"


def profile_names() -> list[str]:
    """The devices that have a profile, shipped or the user's own, sorted."""
    paths = [*_SHIPPED.glob("*.toml"), *user_folder().glob("*.toml")]
    return sorted({path.stem for path in paths})


def load_profile(name_or_path: str | os.PathLike[str]) -> Profile:
    """The profile of a device, by its name, or from a TOML file anywhere.

    A user's own profile takes precedence over a shipped one of the same name.

    Raises
    ------
    ProfileError
        There is no such device, or the file is not a valid profile.
    OSError
        The file cannot be read.
    """
    path = Path(name_or_path)
    if path.suffix == ".toml":
        return _read(path)
    name = str(name_or_path)
    if schema.NAME.fullmatch(name):
        for folder in (user_folder(), _SHIPPED):
            if (folder / f"{name}.toml").is_file():
                return _read(folder / f"{name}.toml")
    raise ProfileError(
        f"device {name!r}: expected one of {nearest(name, profile_names())}, or a .toml file"
    )


def _read(path: Path) -> Profile:
    """The profile in a file that has the device's name."""
    profile, where = schema.read_file(Profile, path), Where(str(path))
    if profile.name != path.stem:
        raise where.at("name").error(f"the file's name, {path.stem!r}", profile.name)
    return profile
