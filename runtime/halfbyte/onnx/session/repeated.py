"""Runs that repeat an earlier one in names, types and shapes: they go straight to its program.

The first run with such feeds has checked and converted them. If it was one program, and took its
feeds as they were, later ones only need its memory filled, the program run and the results copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from halfbyte.onnx.runner import Runner
from halfbyte.onnx.stages import Stage

MAX_KEPT = 64  # names, types and shapes that are remembered

Key = tuple[Any, ...]


class RepeatedRuns:
    """The runs of a session that can be repeated, by the names, types and shapes of a call."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[Stage, dict[str, int] | None, Sequence[str], Runner]] = {}

    def key(self, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> Key | None:
        """What calls have in common that may use the same program; None for other kinds of calls.

        Only arrays of NumPy's own class count: others may differ in more than types and shapes.
        """
        if names is not None:
            if type(names) is not list or not all(type(name) is str for name in names):
                return None
            names = tuple(names)
        parts: list[Any] = [names]
        for name, value in feeds.items():
            if type(value) is not np.ndarray:
                return None
            parts += (name, value.dtype, value.shape)
        return tuple(parts)

    def run(self, key: Key, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The results of a call; None if no earlier one was like it, or its program is gone."""
        known = self._known.get(key)
        if known is None:
            return None
        stage, sizes, names, runner = known
        if not runner.repeat(stage):
            del self._known[key]
            return None
        if sizes is not None and stage.sizes is not None:
            stage.sizes.values = sizes
        return stage.repeated(feeds, names)

    def add(
        self, key: Key, names: Sequence[str], given: Mapping[str, Any], checked: Mapping[str, Any],
        runner: Runner, results: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Remember a call that has just run, if it can be repeated."""
        stage = runner.whole_stage()
        same = given.keys() == checked.keys() and all(given[n] is checked[n] for n in given)
        if stage is None or not same or not stage.can_repeat(names):
            return
        if len(set(names)) < len(names):
            return
        if not all(type(results[name]) is np.ndarray for name in names):
            return
        if len(self._known) == MAX_KEPT:
            self._known.clear()
        sizes = None if stage.sizes is None else dict(stage.sizes.values)
        self._known[key] = stage, sizes, list(names), runner
