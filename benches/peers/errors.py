"""A peer that cannot be had, or fails: its column says why, and the run goes on."""

from __future__ import annotations


class PeerError(SystemExit):
    """The message begins with what is shown where the peer's figures would be."""


def reason(error: BaseException) -> str:
    """The first line, with the last one, such as a process's last words, if there are any."""
    first, *rest = str(error).splitlines() or [type(error).__name__]
    return " ".join([first, *rest[-1:]])[:160]
