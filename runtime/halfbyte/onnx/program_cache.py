"""The programs of a model: kept for later calls, up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, MutableMapping
from typing import Any

from halfbyte.core.buffer import Kind
from halfbyte.core.program import Program
from halfbyte.onnx.stages import Stage

LIMIT = 512 << 20  # bytes, beside the programs of the present run
_OWN = (Kind.INPUT, Kind.OUTPUT, Kind.STATE, Kind.CACHE, Kind.SCRATCH)  # not shared with others

Group = MutableMapping[Any, Stage]  # stages that begin at one node, by their shapes


class ProgramCache:
    """The stages of all graphs of a model; the least recently used go first.

    Parameters
    ----------
    limit : int
        Bytes of memory that programs may keep after a run. Those of the present run always stay.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._stages: OrderedDict[Stage, tuple[Group, Hashable, int]] = OrderedDict()
        self._run = 0
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._stages)

    def begin(self) -> None:
        """A run begins; what it uses stays until the next one."""
        self._run += 1

    def use(self, stage: Stage, group: Group, key: Hashable) -> None:
        """Keep a stage, which is in a group, and drop others if there is too little room."""
        if stage not in self._stages:
            self.nbytes += nbytes(stage.program)
        self._stages[stage] = group, key, self._run
        self._stages.move_to_end(stage)
        while self.nbytes > self.limit:
            oldest = next(iter(self._stages))
            if self._stages[oldest][2] == self._run:
                return
            self.drop(oldest)

    def again(self, stage: Stage) -> bool:
        """A run begins that uses only this stage; False if it is no longer kept."""
        kept = self._stages.get(stage)
        if kept is None:
            return False
        self._run += 1
        self._stages[stage] = kept[0], kept[1], self._run
        self._stages.move_to_end(stage)
        return True

    def used(self, stage: Stage) -> bool:
        """The present run uses this stage; False if it is no longer kept."""
        kept = self._stages.get(stage)
        if kept is None:
            return False
        self._stages[stage] = kept[0], kept[1], self._run
        self._stages.move_to_end(stage)
        return True

    def drop(self, stage: Stage) -> None:
        """Close a stage and forget it."""
        group, key, _ = self._stages.pop(stage)
        self.nbytes -= nbytes(stage.program)
        group.pop(key, None)
        stage.close()


def nbytes(program: Program | None) -> int:
    """The memory that only this program has: all but weights and other constants."""
    totals = {} if program is None else program.bytes_by_kind()
    return sum(totals.get(kind, 0) for kind in _OWN)
