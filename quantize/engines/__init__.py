"""Where independent parts of a run are computed: in this process, or on the nodes of a cluster.

A part is a function of plain data, that of a tensor or of a few; its result is the same wherever it
was computed, to the bit. `base` has the interface and the engine of this process, `distributed`
sends parts to a cluster, as `packing` makes them bytes and `worker` computes them there, again if a
node is lost, and `ray_cluster` is a cluster of Ray's.
"""

from __future__ import annotations

import os

from halfbyte.errors import HalfbyteError
from halfbyte.quantize.engines.base import Engine, Local
from halfbyte.quantize.engines.distributed import Distributed
from halfbyte.quantize.engines.ray_cluster import RayCluster

__all__ = ["Distributed", "Engine", "Local", "RayCluster", "is_local", "open_engine"]


def is_local(name: str) -> bool:
    """Whether an engine's name is that of this process; raises `HalfbyteError` for unknown ones."""
    if name not in ("local", "ray") and not name.startswith("ray:"):
        raise HalfbyteError(f"engine '{name}': expected local, ray or ray:HOST:PORT")
    return name == "local"


def open_engine(name: str, threads: int = 1) -> Engine:
    """An engine by its name.

    Parameters
    ----------
    name : str
        "local"; "ray:HOST:PORT" is the Ray cluster there, of which this machine is a node; "ray"
        is that of the variable RAY_ADDRESS, without which Ray is started on this machine alone.
    threads : int
        Processes of Ray on this machine alone.

    Raises
    ------
    HalfbyteError
        There is no such engine, Ray is not installed, or its cluster cannot be reached.
    """
    if is_local(name):
        return Local()
    address = name.partition(":")[2] or os.environ.get("RAY_ADDRESS") or None
    return Distributed(RayCluster(address, threads))
