"""Engines that run natively: a process each, driven through a pipe."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from benches.peers.errors import PeerError
from benches.prepare import python_of

WORKER = Path(__file__).parent / "worker.py"
PATIENCE = 300  # seconds for an answer, after which the process is killed


class Process:
    """A process with a loaded model, which answers each line with a line of JSON."""

    def __init__(self, engine: str, command: list[str]) -> None:
        self.engine = engine
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        try:
            answer = self._answer()
        except PeerError:
            self.close()
            raise
        self.load_seconds: float = answer["seconds"]
        self.about: str = answer["about"]

    def ask(self, line: str) -> Any:
        """The answer to a line."""
        assert self._process.stdin
        with suppress(BrokenPipeError):  # without a process there is no answer
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        return self._answer()

    def finish(self) -> Any:
        """The answer to the end of input, with which the process ends."""
        assert self._process.stdin
        self._process.stdin.close()
        answer = self._answer()
        self._process.wait()
        return answer

    def _answer(self) -> Any:
        assert self._process.stdout
        end = threading.Timer(PATIENCE, self._process.kill)
        end.start()
        line = self._process.stdout.readline()
        end.cancel()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            tail = self._errors.read().decode(errors="replace").strip()[-2000:]
            raise PeerError(f"{self.engine} ended with {self._process.returncode}:\n{tail}")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            with suppress(BrokenPipeError):  # what was asked and not read
                stream.close()
        self._errors.close()


class Worker(Process):
    """One engine with a language model, which it loads at once, and a number of threads."""

    def __init__(
        self, engine: str, model: Path, threads: int, context: int, python: Path | None = None
    ) -> None:
        self.threads = threads
        self.reason = ""  # why it has failed
        arguments = [str(WORKER), engine, str(model), str(threads), str(context)]
        super().__init__(engine, [str(python or python_of(engine)), *arguments])

    def run(self, test: str) -> float:
        """Seconds of one run of "pp128" or "tg64"."""
        return float(self.ask(test))

    def peak_bytes(self) -> int:
        """Peak resident bytes; the process ends."""
        return int(self.finish())
