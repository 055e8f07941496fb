"""A trial of a peer that is to run in this process: what ends it ends a copy of the process."""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from benches.peers.errors import PeerError

PATIENCE = 120  # seconds
T = TypeVar("T")


def tried(make: Callable[[], Callable[[], T]]) -> Callable[[], T]:
    """What `make` makes, once a forked process has made and called it, where processes fork.

    Raises
    ------
    PeerError
        A signal ended the forked process, or it hung.
    """
    if sys.platform == "linux":
        process = multiprocessing.get_context("fork").Process(target=_run, args=(make,))
        with warnings.catch_warnings():  # of threads, which the copy has none of
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            raise PeerError(f"hung for {PATIENCE} s")
        if process.exitcode < 0:
            raise PeerError(f"ended with {process.exitcode}")
    return make()


def _run(make: Callable[[], Callable[[], object]]) -> None:
    with suppress(Exception):  # which the peer raises in this process, too
        make()()
