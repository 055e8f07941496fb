"""Jobs in other processes: results, errors, and processes that are killed."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from halfbyte.device.processes import finished
from halfbyte.errors import HalfbyteError

shared = sys.platform == "linux"


@pytest.mark.parametrize("processes", [1, 2, 8])
def test_each_job_is_done_once(processes: int) -> None:
    done = dict(finished(lambda job: (job * job, os.getpid()), range(5), processes))
    assert {index: square for index, (square, _) in done.items()} == {i: i * i for i in range(5)}
    others = {pid for _, pid in done.values()} - {os.getpid()}
    assert bool(others) is (processes > 1 and shared)
    assert list(finished(str, [], processes)) == []


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_is_raised_here(processes: int) -> None:
    def work(job: int) -> int:
        if job == 2:
            raise HalfbyteError(f"job {job} of {processes}")
        return job

    with pytest.raises(HalfbyteError, match=f"job 2 of {processes}"):
        list(finished(work, range(40), processes))


def test_a_killed_process_is_said() -> None:
    own = os.getpid()

    def work(job: int) -> None:
        if os.getpid() != own:
            os.kill(os.getpid(), signal.SIGKILL)
        raise HalfbyteError("was killed, as if")

    with pytest.raises(HalfbyteError, match="was killed"):
        list(finished(work, range(4), 2))
