"""Independent jobs shared among copies of this process."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from halfbyte.errors import HalfbyteError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Job = TypeVar("Job")
Result = TypeVar("Result")


def finished(
    work: Callable[[Job], Result], jobs: Sequence[Job], processes: int
) -> Iterator[tuple[int, Result]]:
    """The index and the result of each job, as they are finished.

    Jobs run in forks on Linux, where nothing has to be copied to them, and here otherwise, or with
    one process. Results are pickled, and so are exceptions, which are raised here.

    Raises
    ------
    HalfbyteError
        A process was killed.
    """
    processes = min(processes, len(jobs))
    if processes < 2 or sys.platform != "linux":
        yield from ((index, work(job)) for index, job in enumerate(jobs))
        return
    workers = [_forked(work, jobs) for _ in range(processes)]
    try:
        yield from _dealt([connection for _, connection in workers], len(jobs))
    finally:
        for process, connection in workers:
            connection.close()
            process.terminate()
            process.join()


def _forked(work: Callable[[Job], Result], jobs: Sequence[Job]) -> tuple[Any, Connection]:
    from multiprocessing import get_context  # which browsers do not have

    context = get_context("fork")
    ours, its = context.Pipe()
    process = context.Process(target=_serve, args=(its, work, jobs), daemon=True)
    with warnings.catch_warnings():  # of threads: those of BLAS, which a fork starts anew
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    its.close()
    return process, ours


def _serve(connection: Connection, work: Callable[[Job], Result], jobs: Sequence[Job]) -> None:
    """In a fork: answer each index with the job's result, until none comes."""
    try:
        while True:
            index = connection.recv()
            try:
                answer: tuple[Any, BaseException | None] = work(jobs[index]), None
            except Exception as error:  # raised by the process that asked
                answer = None, error
            connection.send(answer)
    except (EOFError, OSError, KeyboardInterrupt):
        pass  # the process that asked has ended, or was interrupted as this one


def _dealt(connections: Sequence[Connection], count: int) -> Iterator[tuple[int, Any]]:
    """Deal the indices out, a new one to each process that has answered."""
    from multiprocessing.connection import wait

    left = iter(range(count))
    asked: dict[Any, int] = {}
    for connection in connections:
        asked[connection] = next(left)
        connection.send(asked[connection])
    while asked:
        ready: list[Any] = wait(list(asked))
        for connection in ready:
            index = asked.pop(connection)
            try:
                result, error = connection.recv()
            except EOFError:
                raise HalfbyteError("a process that simulates devices was killed") from None
            if error is not None:
                raise error
            if (following := next(left, None)) is not None:
                asked[connection] = following
                connection.send(following)
            yield index, result
