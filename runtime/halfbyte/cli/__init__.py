"""The command line: ``halfbyte run | chat | tokenize | info | ...``, and ``quantize``.

The entry points here import only `guard`, which handles Ctrl-C, closed streams and errors; all
other modules are imported inside the guarded call. Each command has a module of its own, which adds
it to the parser (`commands`); `parser` extends argparse, `shared` has the options that several
commands take. `prompts` reads texts from arguments, files and pipes. `replacing` asks before a file
that halfbyte did not write is replaced.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence

from halfbyte.cli.guard import guarded

__all__ = ["guarded", "main", "quantize"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 2 for input that cannot be used."""
    words = list(sys.argv[1:] if arguments is None else arguments)

    def command() -> int:
        if words[:1] == ["quantize"]:
            from halfbyte.cli.quantize_command import run

            return run(words[1:])
        from halfbyte.cli.commands import run_command

        return run_command(words)

    return _guarded(command, words, is_process=arguments is None)


def quantize(arguments: Sequence[str] | None = None) -> int:
    """The command ``quantize``, which is also ``halfbyte quantize``."""
    words = list(sys.argv[1:] if arguments is None else arguments)

    def command() -> int:
        from halfbyte.cli.quantize_command import run

        return run(words)

    return _guarded(command, words, is_process=arguments is None)


def _guarded(command: Callable[[], int], arguments: Sequence[str], *, is_process: bool) -> int:
    code = guarded(command, debug="--debug" in arguments)
    if is_process:  # Python is about to exit: Ctrl-C has nothing left to interrupt
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code
