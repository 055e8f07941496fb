"""The command line: ``halfbyte run | chat | tokenize | info | ...``, and ``quantize``.

One file per group of commands; each adds its own to the parser. All of it is imported when a
command is called, where Ctrl-C is met already.
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
            from halfbyte.cli.quantization import run

            return run(words[1:])
        from halfbyte.cli.commands import run as run_command

        return run_command(words)

    return _guarded(command, words, is_process=arguments is None)


def quantize(arguments: Sequence[str] | None = None) -> int:
    """The command ``quantize``, which is ``halfbyte quantize`` too."""
    words = list(sys.argv[1:] if arguments is None else arguments)

    def command() -> int:
        from halfbyte.cli.quantization import run

        return run(words)

    return _guarded(command, words, is_process=arguments is None)


def _guarded(command: Callable[[], int], words: Sequence[str], *, is_process: bool) -> int:
    code = guarded(command, debug="--debug" in words)
    if is_process:  # while Python ends, Ctrl-C has nothing to interrupt
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code
