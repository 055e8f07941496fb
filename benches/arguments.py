"""Types of command-line arguments."""

from __future__ import annotations

import argparse


class Some:
    """A type of arguments: known names, separated by commas."""

    def __init__(self, known: tuple[str, ...]) -> None:
        self._known = known

    def __call__(self, text: str) -> list[str]:
        names = [part.strip() for part in text.split(",") if part.strip()]
        if wrong := [name for name in names if name not in self._known]:
            raise argparse.ArgumentTypeError(
                f"expected some of {', '.join(self._known)}; found {', '.join(wrong)}"
            )
        return names


def counts(text: str) -> list[int]:
    """Numbers of 1 or more, separated by commas."""
    values = [int(part) for part in text.split(",")]
    if min(values) < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {min(values)}")
    return values
