"""The profile of this machine, from measurements and from what the system reports."""

from __future__ import annotations

import platform
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from halfbyte.device.measure import Measured, kernels_of
from halfbyte.device.profile import Memory, Overhead, Profile, load_profile, profile_names
from halfbyte.device.quantity import Quantity, Steps
from halfbyte.device.sensors import has_battery
from halfbyte.room import machine_bytes

MEASURED = "halfbyte device measure"  # then the day: the source of measured numbers
_NAME = "this-machine"
_LIKE = "macbook-air-m1"
_CORE_W = 6.0
_CACHE_MB = 12.0  # per core: the most that processors have (EPYC with stacked caches)


def machine_profile(measured: Measured, name: str = _NAME) -> Profile:
    """The profile from measurements; heat and power, which are not measured, are a laptop's."""
    like, today = load_profile(_LIKE), datetime.now(tz=UTC).date()
    source = f"{MEASURED}, {today}"

    def known(value: float, digits: int = 4) -> Quantity:
        value = float(f"{value:.{digits}g}")
        return Quantity(value, value, value, source)

    threads = max(measured.int8)
    hertz = _frequency()
    cluster = replace(
        like.clusters[0],
        name="cores",
        cores=known(threads),
        frequencies_mhz=Steps((hertz / 1e6,), "what the system says, or 1000"),
        voltages_mv=Steps((1000.0,), assumed="only what is taken at this frequency matters"),
        dynamic_power_uw_per_mhz_v2=_assumed(_CORE_W / (hertz / 1e6) * 1e6, 3.0, "6 W a core"),
        int8_ops_per_cycle=known(measured.int8[threads] / threads / hertz),
        float32_ops_per_cycle=known(measured.float32 / hertz),
    )
    memory = Memory(
        ram_mb=Quantity(ram := machine_bytes() / 1e6, ram, ram, source),
        app_mb=_assumed(0.75 * ram, 1.2, "three quarters of the memory"),
        tab_mb=_assumed(min(0.5 * ram, 4000.0), 2.0, "a tab of 32 bits has at most 4 GB"),
        bandwidth_gb_s=known(max(measured.bandwidth.values()) / 1e9),
        core_bandwidth_gb_s=known(measured.bandwidth[1] / 1e9),
        storage_gb_s=known(measured.storage / 1e9)
        if measured.storage
        else _assumed(1.0, 4.0, "a solid-state disk; not measured"),
        cache_mb=_measured_cache(measured.cache, source) or _cache(threads),
    )
    overhead = Overhead(known(measured.launch * 1e6), known(measured.call * 1e6))
    return replace(
        like, name=name, title=_processor(), kind="machine", year=today.year, memory=memory,
        clusters=(cluster,), overhead=overhead, instructions=None,
        kernels=kernels_of(measured, source), battery=like.battery if has_battery() else None,
    )  # fmt: skip


def profile_of_this_machine() -> Profile:
    """The profile that `halfbyte device measure` wrote, else a laptop's."""
    return load_profile(_NAME if _NAME in profile_names() else _LIKE)


def is_measured(profile: Profile) -> bool:
    """Whether `device measure` created a profile, of this machine or of a phone."""
    if profile.kind == "machine":
        return profile.clusters[0].int8_ops_per_cycle.source.startswith(f"{MEASURED}, ")
    return any(n.source.startswith(f"{MEASURED} --adb, ") for _, n in profile.numbers())


def _assumed(value: float, factor: float, why: str) -> Quantity:
    return Quantity(value, value / factor, value * factor, assumed=why)


def _system(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _processor() -> str:
    """The processor's name as Linux reports it, else the machine's type."""
    match = re.search(r"^model name\s*:\s*(.+)$", _system("/proc/cpuinfo"), re.MULTILINE)
    name = match[1].strip() if match else platform.processor() or platform.machine()
    return name if name.isprintable() else "unknown"


def _frequency() -> float:
    """The clock in Hz as Linux reports it; else 1e9, as only products with it matter."""
    match = re.search(r"^cpu MHz\s*:\s*([\d.]+)$", _system("/proc/cpuinfo"), re.MULTILINE)
    return round(float(match[1])) * 1e6 if match else 1e9


def _measured_cache(size: int | None, source: str) -> Quantity | None:
    """The size that was measured, to a factor of two; None if it was not."""
    if size is None:
        return None
    value = max(size, 1 << 18) / 1e6  # a core's own cache, where none of the sizes tried is cached
    return Quantity(value, value, 2 * value, source)


def _cache(threads: int) -> Quantity:
    """The size of a core's last cache, as Linux reports it."""
    texts = (
        _system(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size").strip()
        for index in range(8)
    )
    sizes = [int(t[:-1]) * 1024 / 1e6 for t in texts if re.fullmatch(r"\d{1,9}K", t)]
    if not sizes:
        return _assumed(8.0, 4.0, "the system does not say")
    share = _CACHE_MB * threads
    if max(sizes) > share:  # a virtual machine reports its host's cache, which many share
        return _assumed(share, 4.0, f"{_CACHE_MB:g} MB a core, of {max(sizes):.0f} MB claimed")
    return Quantity(max(sizes), max(sizes), max(sizes), "what the system says of the first core")
