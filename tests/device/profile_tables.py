"""A small profile as a table of TOML, and changes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Table = dict[str, Any]


def small() -> Table:
    """A small valid profile."""

    def of(value: Any) -> Table:
        return {"value": value, "source": "a data sheet"}

    cluster = {
        "name": "all", "node": "soc", "cores": of(4), "frequencies_mhz": of([600, 1200]),
        "voltages_mv": of([700, 800]), "dynamic_power_uw_per_mhz_v2": of(100),
        "int8_ops_per_cycle": of(32), "float32_ops_per_cycle": of(8), "leakage_w": of(0.1),
        "leakage_doubling_k": of(25),
    }  # fmt: skip
    memory = {
        "ram_mb": of(2000), "app_mb": of(1000), "tab_mb": of(400), "bandwidth_gb_s": of(8),
        "core_bandwidth_gb_s": of(4), "storage_gb_s": of(0.2), "cache_mb": of(1),
    }  # fmt: skip
    trip = {"node": "soc", "start_c": of(40), "full_c": of(42), "floor": of(0.5)}
    thermal = {
        "ambient_c": of(25),
        "nodes": {"soc": {"heat_capacity_j_k": of(20)}, "case": {"heat_capacity_j_k": of(40)}},
        "links": [
            {"between": ["soc", "case"], "resistance_k_w": of(2)},
            {"between": ["case", "ambient"], "resistance_k_w": of(5)},
        ],
        "trips": [{**trip, "hysteresis_k": of(1)}],
        "allocator": {"node": "case", "control_c": of(43), "sustainable_w": of(2)},
    }
    return {
        "name": "small", "title": "Small", "kind": "board", "year": 2020, "memory": memory,
        "clusters": [cluster], "overhead": {"launch_us": of(1), "call_us": of(50)},
        "thermal": thermal,
        "power": {"node": "case", "idle_w": of(1), "memory_pj_per_byte": of(60)},
        "battery": {"capacity_wh": of(15), "full_v": of(4.4)},
    }  # fmt: skip


def put(path: str, value: Any) -> Callable[[Table], None]:
    """Set the entry at a path of keys and indices."""

    def change(table: Table) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in path.split("/")]
        result: Any = table
        for part in way:
            result = result[part]
        result[last] = value

    return change


def drop(path: str) -> Callable[[Table], None]:
    def change(table: Table) -> None:
        *way, last = path.split("/")
        result: Any = table
        for part in way:
            result = result[int(part) if part.isdigit() else part]
        del result[last]

    return change


def value(of: Any, **more: Any) -> Table:
    return {"value": of, "source": "a data sheet", **more}


def guess(of: Any, **more: Any) -> Table:
    return {"value": of, "assumed": "a guess", **more}
