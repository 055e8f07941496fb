"""A cluster of Ray's, an optional package; nothing of it is imported before it is asked for."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from halfbyte.errors import HalfbyteError
from halfbyte.quantize.engines import worker
from halfbyte.quantize.engines.distributed import LostError
from halfbyte.quantize.engines.packing import Packed

_SECONDS = 5.0  # in which a cluster answers; Ray itself tries for minutes, then ends the process
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}
_ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # then it listens on 127.0.0.1 only


class RayCluster:
    """The workers of a Ray cluster, one for each of its processors.

    Parameters
    ----------
    address : str or None
        HOST:PORT of a cluster of which this machine is a node. None: Ray is started on this
        machine, for this run, and listens on 127.0.0.1 only.
    threads : int
        Workers on this machine, if it is started.

    Raises
    ------
    HalfbyteError
        Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(self, address: str | None, threads: int = 1) -> None:
        if address is not None:
            _check(address)
        with _environment(_QUIET if address is not None else _QUIET | _ALONE):
            self._ray: Any = _imported()
            self._own = not self._ray.is_initialized()
            self._shown = ExitStack()
            if self._own:
                _connect(self._ray, address, threads)
                self._shown.enter_context(_nothing_printed())
        self._run = self._ray.remote(num_cpus=1, max_retries=0)(_runner())
        self._conditions = worker.conditions()

    def slots(self) -> int:
        """Processors of the cluster as it is now."""
        return int(self._ray.cluster_resources().get("CPU", 1))

    def share(self, work: Packed) -> Any:
        """Keep work in the memory that processes of a node share; returns a reference."""
        return self._ray.put(work)

    def submit(self, key: str, work: Any, part: Packed) -> Any:
        """Begin a part; returns a reference to its result."""
        return self._run.remote(self._conditions, key, work, part)

    def result(self, handle: Any) -> Packed | str:
        """Wait for a part's result."""
        errors = self._ray.exceptions
        try:
            result: Packed | str = self._ray.get(handle)
        except errors.RayTaskError as error:  # an error of the part, as it would be raised here
            raise error.cause from None
        except errors.RayError as error:
            text = next(iter(str(error).splitlines()), "")
            raise LostError(f"{type(error).__name__}: {text}") from None
        return result

    def cancel(self, handles: Iterable[Any]) -> None:
        """Give parts up; where the connection is this run's own, they end with it."""
        for handle in () if self._own else handles:
            self._ray.cancel(handle)

    def close(self) -> None:
        """Leave the cluster; one that was started for this run ends."""
        if self._own:
            self._ray.shutdown()
            self._shown.close()


def _runner() -> Callable[..., Packed | str]:
    """`worker.run` as workers get it: itself, not by its name, which may lead to another there."""

    def run(conditions: Mapping[str, str], key: str, work: Packed, part: Packed) -> Packed | str:
        import platform

        try:
            import halfbyte

            found = halfbyte.__version__
        except ImportError:
            found = "none"
        where = platform.node()
        if found != conditions["halfbyte"]:
            return f"{where}: expected halfbyte {conditions['halfbyte']}, found {found}"
        from halfbyte.quantize.engines.worker import run

        result = run(conditions, key, work, part)
        return f"{where}: {result}" if isinstance(result, str) else result

    return run


def _imported() -> Any:
    try:
        return import_module("ray")
    except ImportError as error:
        raise HalfbyteError(
            f"engine 'ray': expected the package ray: pip install 'halfbyte[ray]' ({error})"
        ) from None


def _check(address: str) -> None:
    """Raise where nothing answers at an address."""
    match = re.fullmatch(r"(?:\[(.+)\]|([^\[\]:/]+)):(\d{1,5})", address)
    if match is None or not 0 < int(match[3]) < 65536:
        raise HalfbyteError(f"engine 'ray': expected an address HOST:PORT, found '{address}'")
    try:
        socket.create_connection((match[1] or match[2], int(match[3])), _SECONDS).close()
    except OSError as error:
        raise HalfbyteError(f"engine 'ray': no cluster answers at {address}: {error}") from None


def _connect(ray: Any, address: str | None, threads: int) -> None:
    alone = {"num_cpus": threads, "include_dashboard": False} if address is None else {}
    try:
        with _own_signals(), warnings.catch_warnings(action="ignore"):
            ray.init(
                address=address or "local", log_to_driver=False, logging_level="CRITICAL", **alone
            )
    except (SystemExit, Exception) as error:  # it exits where it can't connect
        where = f"the cluster at {address}" if address else "a cluster of this machine"
        text = next(iter(str(error).splitlines()), "")
        raise HalfbyteError(
            f"engine 'ray': cannot connect to {where}: {type(error).__name__}: {text}"
        ) from None


@contextmanager
def _nothing_printed() -> Iterator[None]:
    """No messages on stdout about lost workers and nodes, which Ray has no option for."""
    module: Any = import_module("ray._private.worker")
    before = getattr(module, "print_to_stdstream", None)
    module.print_to_stdstream = lambda *arguments, **options: None
    try:
        yield
    finally:
        module.print_to_stdstream = before


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables as defaults in this context, in which Ray reads them."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _own_signals() -> Iterator[None]:
    """What SIGTERM does stays as it is."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
