"""The profile of a phone from what it says through adb; see `adb`.

Numbers that were read say so as their source. All others are those of a similar phone, and assumed
with its ranges, or wider ones.
"""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from halfbyte.device.adb import Reading
from halfbyte.device.cooling import Thermal, Trip
from halfbyte.device.likeness import assumed, scaled
from halfbyte.device.machine import MEASURED, is_measured
from halfbyte.device.profile import Battery, Cluster, Memory, Profile, load_profile, profile_names
from halfbyte.device.quantity import Quantity, Steps
from halfbyte.device.schema import Where, read_table
from halfbyte.device.sensors import Clock
from halfbyte.device.toml_writer import to_toml

_USUAL = "pixel-6"  # like which a phone is that says nothing
_READS = (0.6, 1.1)  # what cores read, of what they fill
_VECTORS = (0.8, 2.0)  # power of products, of that of a loop
# Cores by implementer and part in /proc/cpuinfo (Linux, arch/arm64/include/asm/cputype.h), and the
# profile and cluster that have them
_CORES = {
    ("0x41", "0xd03"): ("android-go-2gb", "a53"), ("0x41", "0xd05"): ("pixel-6", "a55"),
    ("0x41", "0xd09"): ("lenovo-duet", "a73"), ("0x41", "0xd0b"): ("pixel-6", "a76"),
    ("0x41", "0xd0d"): ("fairphone-4", "a77"), ("0x41", "0xd44"): ("pixel-6", "x1"),
    ("0x41", "0xd80"): ("oneplus-12", "a520"), ("0x41", "0xd81"): ("oneplus-12", "a720-fast"),
    ("0x41", "0xd82"): ("oneplus-12", "x4"), ("0x51", "0x001"): ("galaxy-s25", "oryon-prime"),
}  # fmt: skip
_SEVERITIES = (2, 4)  # Android's "moderate" and "critical": where throttling begins and is full
_THRESHOLDS = re.compile(r"[Hh]otThrottlingThresholds\s*=\s*\[([^\]]{1,200})\]")
_SKIN = re.compile(r"[Tt]ype\s*=\s*(SKIN|3)\s*,")


def slug(reading: Reading) -> str:
    """A name for the profile: my-, and the phone's model."""
    model = re.sub(r"[^a-z0-9]+", "-", reading.properties["ro.product.model"].lower()).strip("-")
    return f"my-{model[:50] or 'phone'}"


def similar(reading: Reading) -> str:
    """The shipped phone whose memory, and sum of all cores' highest clocks, are nearest."""
    phones = [p for p in map(load_profile, profile_names()) if p.kind == "phone"]
    mhz = sum(len(clock.cores) * (clock.highest_mhz or 0.0) for clock in reading.clocks)
    ram = _ram_mb(reading)

    def distance(phone: Profile) -> float:
        own = sum(c.cores.value * c.frequencies_mhz.values[-1] for c in phone.clusters)
        pairs = [(ram, phone.memory.ram_mb.value), (mhz, own)]
        return sum(abs(math.log(known / other)) for known, other in pairs if known)

    if not mhz and ram is None:
        return _USUAL
    return min((p for p in phones if not is_measured(p)), key=distance).name


def phone_profile(reading: Reading, name: str, like: str) -> Profile:
    """The profile; what was not read is that of the device `like`, and assumed.

    Raises
    ------
    ProfileError
        What the phone says does not make a device.
    """
    today = datetime.now(tz=UTC).date()
    source = f"{MEASURED} --adb, {today}"
    other = load_profile(like)
    known = assumed(other, other.name)
    clusters = _clusters(reading, known, source)
    maker, model = (
        reading.properties.get(f"ro.product.{key}", "")[:60] for key in ("manufacturer", "model")
    )
    title = f"{maker} {model}".strip()
    profile = replace(
        known, name=name, title=title if title.isprintable() and title else "a phone", kind="phone",
        year=today.year, memory=_memory(reading, known.memory, source), clusters=clusters,
        thermal=_thermal(reading, known.thermal, source),
        power=_power(reading, known, source),
        battery=_battery(reading, known.battery, source),
        instructions=_instructions(reading, known.instructions), kernels={},
    )  # fmt: skip
    return checked(profile)


def checked(profile: Profile) -> Profile:
    """The profile as a reader of its file will have it; raises `ProfileError` if it would not."""
    return read_table(Profile, tomllib.loads(to_toml(profile)), Where(profile.name))


# ---- parts ---------------------------------------------------------------------------------------


def _read(value: float, source: str, digits: int = 4) -> Quantity:
    value = float(f"{value:.{digits}g}")
    return Quantity(value, value, value, source)


def _ram_mb(reading: Reading) -> float | None:
    """What Linux has of the memory."""
    match = re.search(r"MemTotal:\s*([0-9]{1,12}) kB", reading.parts["memory"])
    ram = int(match[1]) * 1024 / 1e6 if match else 0.0
    return ram if 100 <= ram <= 1e6 else None


def _memory(reading: Reading, like: Memory, source: str) -> Memory:
    ram = _ram_mb(reading)
    share = 1.0 if ram is None else ram / like.ram_mb.value
    memory = replace(
        like,
        ram_mb=like.ram_mb if ram is None else _read(ram, f"{source}: MemTotal"),
        app_mb=scaled(like.app_mb, share), tab_mb=scaled(like.tab_mb, min(share, 1.0)),
    )  # fmt: skip
    speeds = {n: speed / 1e9 for n, speed in reading.filled.items() if 0.1 < speed / 1e9 < 1e3}
    if len(speeds) < min(len(reading.filled), 2):
        return memory
    one, every = speeds[min(speeds)], max(speeds.values())
    return replace(
        memory,
        bandwidth_gb_s=_filled(every, source, f"{max(speeds)} cores fill"),
        core_bandwidth_gb_s=_filled(min(one, every), source, "a core fills"),
    )


def _filled(speed: float, source: str, who: str) -> Quantity:
    low, value, high = (float(f"{speed * f:.3g}") for f in (_READS[0], 0.85, _READS[1]))
    why = f"{source}: {who} {speed:.3g} GB/s (dd); reading is somewhat slower on other phones"
    return Quantity(value, low, high, assumed=why)


def _clusters(reading: Reading, like: Profile, source: str) -> tuple[Cluster, ...]:
    """Cores by clock, the fastest first; without clocks those of the similar phone."""
    known = [clock for clock in reading.clocks if clock.cores and clock.highest_mhz]
    known.sort(key=lambda clock: -(clock.highest_mhz or 0.0))
    if not known:
        return like.clusters
    parts = _parts(reading)
    found = []
    for index, clock in enumerate(known[:16]):
        last = index == len(known) - 1 and index > 0
        other = like.clusters[-1] if last else like.clusters[min(index, len(like.clusters) - 1)]
        part = parts.get(clock.cores[0])
        steps, highest = clock.frequencies_mhz, clock.highest_mhz or 0.0
        found.append(_cluster(clock.cores, steps, highest, part, other, source))
    return tuple(_powered(found, reading, known, source))


def _powered(
    clusters: list[Cluster], reading: Reading, known: list[Clock], source: str
) -> list[Cluster]:
    """With the power that makes all clusters together take what the battery gave under load."""
    rest, busy = reading.watts()
    if rest is None or busy is None or not 0.2 < busy - rest < 40:
        return clusters
    full = 0.0
    for cluster, clock in zip(clusters, known, strict=False):
        seen = [mhz for files in reading.load if (mhz := Clock(clock.path, files).now_mhz())]
        mhz = float(np.median(seen)) if seen else cluster.frequencies_mhz.values[-1]
        volts = np.interp(mhz, cluster.frequencies_mhz.values, cluster.voltages_mv.values) / 1e3
        each = cluster.dynamic_power_uw_per_mhz_v2.value * mhz * volts**2 / 1e6
        full += cluster.cores.value * each
    scale = (busy - rest) / full
    why = f"{source}: all cores busy take {busy - rest:.1f} W of the battery; products take more"

    def scaled(old: Quantity) -> Quantity:
        value, low, high = (
            float(f"{old.value * scale * f:.3g}") for f in (1.0, _VECTORS[0], _VECTORS[1])
        )
        return Quantity(value, low, high, assumed=why)

    return [
        replace(c, dynamic_power_uw_per_mhz_v2=scaled(c.dynamic_power_uw_per_mhz_v2))
        for c in clusters
    ]


def _cluster(
    cores: list[int], steps: list[float], highest: float, part: tuple[str, str] | None,
    like: Cluster, source: str,
) -> Cluster:  # fmt: skip
    if len(steps) < 2 or steps[-1] != highest:
        scale = highest / like.frequencies_mhz.values[-1]
        steps = [float(f"{mhz * scale:.4g}") for mhz in like.frequencies_mhz.values[:-1]]
        steps = [mhz for mhz in steps if mhz < highest] + [highest]
        frequencies = Steps(tuple(steps), f"{source}: the highest; the others as {like.name}'s")
    else:
        frequencies = Steps(tuple(steps), f"{source}: cpufreq")
    shares = np.array(steps) / highest
    old = np.array(like.frequencies_mhz.values) / like.frequencies_mhz.values[-1]
    volts = np.maximum.accumulate(np.interp(shares, old, like.voltages_mv.values))
    cluster = replace(
        like,
        name=f"cores-{min(cores)}-{max(cores)}",
        cores=_read(float(len(cores)), f"{source}: cpufreq"),
        frequencies_mhz=frequencies,
        voltages_mv=Steps(tuple(float(f"{v:.4g}") for v in volts), assumed=f"as {like.name}'s"),
    )
    if part not in _CORES:
        return cluster
    device, name = _CORES[part]
    [core] = [c for c in load_profile(device).clusters if c.name == name]
    return replace(
        cluster, int8_ops_per_cycle=core.int8_ops_per_cycle,
        float32_ops_per_cycle=core.float32_ops_per_cycle,
    )  # fmt: skip


def _parts(reading: Reading) -> dict[int, tuple[str, str]]:
    """Implementer and part of each core that was on."""
    parts = {}
    for text in reading.parts["processors"].split("\n\n"):
        fields = dict(
            re.findall(r"^(processor|CPU implementer|CPU part)\s*:\s*(\w{1,8})$", text, re.M)
        )
        if len(fields) == 3 and fields["processor"].isdecimal():
            parts[int(fields["processor"])] = fields["CPU implementer"], fields["CPU part"]
    return parts


def _instructions(reading: Reading, like: str | None) -> str | None:
    features = " ".join(
        re.findall(r"^Features\s*:(.*)$", reading.parts["processors"], re.M)
    ).split()
    if not features:
        return like
    oryon = any(part[0] == "0x51" for part in _parts(reading).values())
    if oryon:  # whose SMMLA does no more than its SDOT
        return "dotprod-wide"
    if "i8mm" in features:
        return "i8mm"
    return "dotprod" if "asimddp" in features else "neon"


def _thermal(reading: Reading, like: Thermal, source: str) -> Thermal:
    """The similar phone's network, with the phone's own limits of its skin."""
    thermal = replace(like, calibrated=None)
    limits = _skin_limits(reading)
    if limits is None:
        return thermal
    node = like.allocator.node
    start, full = (_read(c, f"{source}: dumpsys thermalservice, SKIN") for c in limits)
    model = next((t for t in like.trips if t.node == node), like.trips[0] if like.trips else None)
    trips = tuple(t for t in like.trips if t.node != node)
    if model is not None:
        trips = (Trip(node, start, full, model.floor, model.hysteresis_k), *trips)
    return replace(thermal, trips=trips, allocator=replace(like.allocator, control_c=start))


def _skin_limits(reading: Reading) -> tuple[float, float] | None:
    """Where the skin's throttling begins and where it is full, by Android's thermal service."""
    found = []
    for line in reading.parts["thermal"].splitlines():
        skin, match = _SKIN.search(line), _THRESHOLDS.search(line)
        if skin and match:
            words = [word.strip() for word in match[1].split(",")]
            if len(words) > max(_SEVERITIES):
                start, full = (_number(words[severity]) for severity in _SEVERITIES)
                if start is not None and full is not None and 30 < start < full < 80:
                    found.append((start, full))
    return min(found, default=None)


def _power(reading: Reading, like: Profile, source: str) -> Any:
    rest, _ = reading.watts()
    if rest is None or not 0.05 < rest < 10:
        return like.power
    return replace(like.power, idle_w=_read(rest, f"{source}: what the battery gives at rest", 3))


def _battery(reading: Reading, like: Battery | None, source: str) -> Battery | None:
    battery = reading.battery
    hours = battery.watt_hours() if battery else None
    if hours is None or not 1 < hours < 200:
        return like
    return Battery(_read(hours, f"{source}: the design's charge and voltage", 3))


def _number(word: str) -> float | None:
    return float(word) if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,6})?", word) else None
