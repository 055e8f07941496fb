"""Other programs' outputs, of limited size and within a limited time."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class Output:
    """What a program printed, and its exit code; None if it was stopped or is not there."""

    text: str
    code: int | None


def output_of(words: Sequence[str], timeout_s: float, limit: int = MAX_BYTES) -> Output:
    """Run a program; one that prints more than `limit` bytes, or takes too long, is stopped."""
    try:
        process = subprocess.Popen(  # noqa: S603 - a fixed command, without a shell
            list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return Output(str(error), None)
    stopped = threading.Event()

    def stop() -> None:
        stopped.set()
        with suppress(OSError):  # it has ended
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)  # with those that it started
            else:
                process.kill()

    timer = threading.Timer(timeout_s, stop)
    timer.start()
    with process:
        pipe = process.stdout
        data = b"" if pipe is None else pipe.read(limit)
        if pipe is not None and pipe.read(1):
            stop()
        process.wait()
    timer.cancel()
    return Output(
        data.decode("utf-8", errors="replace"), None if stopped.is_set() else process.returncode
    )
