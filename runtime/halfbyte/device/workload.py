"""Workloads: the tokens of prompts and answers, or the runs, and the pauses of a model over time.

A file for a language model has turns, one for a graph has bursts. It is TOML (``[[turn]]``,
``[[burst]]``) or CSV (a header, then a line for each), with the columns ``prompt`` and ``answer``
in tokens, or ``runs``, then ``pause_s`` in seconds and optionally ``per_s``. It may come from
anywhere.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt

from halfbyte.device import schema
from halfbyte.device.schema import Reader, Text, Where
from halfbyte.errors import ProfileError

F64 = npt.NDArray[np.float64]

MAX_TURNS = 1_000_000
_BOUNDS = {
    "prompt": (0, 1e6), "answer": (0, 1e6), "runs": (0, 1e9), "pause_s": (0.1, 1e6),
    "per_s": (1e-3, 1e6),
}  # fmt: skip


def _bare(key: str) -> Reader:
    """A reader of a plain number within the bounds of `key`."""

    def read(data: object, where: Where) -> float:
        return _bounded(key, data, where)

    return read


@dataclass(frozen=True)
class Turn:
    """Tokens of a prompt and of its answer (or runs instead of an answer), then a pause.

    At most `per_s` of an answer's tokens, or of runs, are asked for per second: as fast as somebody
    reads, or as a camera takes pictures.
    """

    prompt: Annotated[float, _bare("prompt")]
    answer: Annotated[float, _bare("answer")]
    pause_s: Annotated[float, _bare("pause_s")]
    per_s: Annotated[float, _bare("per_s")] = inf


@dataclass(frozen=True)
class _Burst:
    runs: Annotated[float, _bare("runs")]
    pause_s: Annotated[float, _bare("pause_s")]
    per_s: Annotated[float, _bare("per_s")] = inf


@dataclass(frozen=True)
class _Turns:
    turn: Annotated[tuple[Turn, ...], schema.tables(Turn, 1, MAX_TURNS)]


@dataclass(frozen=True)
class _Bursts:
    burst: Annotated[tuple[_Burst, ...], schema.tables(_Burst, 1, MAX_TURNS)]


@dataclass(frozen=True)
class Workload:
    """Turns that follow one another and start over until the time has passed."""

    name: str
    turns: tuple[Turn, ...]

    @property
    def prompts(self) -> bool:
        """Whether any turn has a prompt."""
        return any(turn.prompt for turn in self.turns)

    @property
    def per_s(self) -> float:
        """The most tokens of an answer, or runs, that are asked for per second."""
        return max(turn.per_s for turn in self.turns)


R = TypeVar("R", Turn, _Burst)

CONTINUOUS = Workload("continuous", (Turn(0.0, inf, 0.0),))
CHAT = Workload("chat", (Turn(200.0, 150.0, 20.0),))


def load_workload(name: str, unit: str = "token") -> Workload:
    """A workload by name: ``continuous``, ``chat`` (only for tokens), a rate or a file.

    A rate such as ``30/s`` is a continuous workload of at most 30 units per second. A file has
    turns for tokens, and bursts for runs.

    Raises
    ------
    ProfileError
        The file is not valid; the message names the file and the key or line.
    OSError
        The file cannot be read.
    """
    known = {workload.name: workload for workload in (CONTINUOUS, CHAT)[: 1 + (unit == "token")]}
    if name in known:
        return known[name]
    if name.endswith("/s") and isinstance(rate := _number(name[:-2]), float):
        place = Where(f"workload {name!r}")
        return Workload(name, (Turn(0.0, inf, 0.0, _bounded("per_s", rate, place)),))
    path = Path(name)
    if path.suffix not in (".toml", ".csv"):
        hint = "; graphs have no prompts and answers" if name == CHAT.name else ""
        raise ProfileError(
            f"workload {name!r}: expected {', '.join(known)}, a rate such as 30/s, or a .toml or "
            f".csv file{hint}"
        )
    turns = tuple(_turn(row) for row in _rows(path, unit))
    if not any(turn.answer for turn in turns):
        key = "runs" if unit == "run" else "answer"
        expected = "a burst with runs" if unit == "run" else "a turn with an answer"
        raise Where(str(path), key).error(expected, Text("0 in all"))
    return Workload(path.name, turns)


def _rows(path: Path, unit: str) -> Iterable[Turn | _Burst]:
    toml = path.suffix == ".toml"
    if unit == "run":
        return schema.read_file(_Bursts, path).burst if toml else _read_csv(path, _Burst)
    return schema.read_file(_Turns, path).turn if toml else _read_csv(path, Turn)


def _turn(row: Turn | _Burst) -> Turn:
    return row if isinstance(row, Turn) else Turn(0.0, row.runs, row.pause_s, row.per_s)


def _read_csv(path: Path, of: type[R]) -> Iterator[R]:
    """Rows with the fields of a class as columns, in any order."""
    where = Where(str(path))
    with path.open("rb") as file:
        data = file.read(schema.MAX_BYTES + 1)
    if len(data) > schema.MAX_BYTES:
        raise where.error(f"a file of at most {schema.MAX_BYTES} bytes", Text("more"))
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise where.error("a table of text with commas", Text(str(error)[:200])) from None
    head = [cell.strip() for cell in rows[0]] if rows else []
    *required, optional = (field.name for field in fields(of))
    if sorted(head) not in (sorted(required), sorted([*required, optional])):
        expected = f"the columns {','.join(required)} and optionally {optional}"
        raise Where(str(path), "line 1").error(expected, ",".join(head))
    numbered = [(line, row) for line, row in enumerate(rows[1:], 2) if row]
    if not numbered:
        raise Where(str(path), "line 2").error("a line of numbers", None)
    for line, row in numbered:
        place = Where(str(path), f"line {line}")
        if len(row) != len(head):
            raise place.error(f"{len(head)} numbers", Text(f"{len(row)}"))
        cells = zip(head, row, strict=True)
        yield of(**{key: _bounded(key, _number(cell), place.at(key)) for key, cell in cells})


def _number(cell: str) -> object:
    try:
        return float(cell)
    except ValueError:
        return cell


def _bounded(key: str, data: Any, where: Where) -> float:
    """A number within the bounds of its column; NaN is in none."""
    minimum, maximum = _BOUNDS[key]
    is_number = isinstance(data, (int, float)) and not isinstance(data, bool)
    if is_number and minimum <= data <= maximum:
        return float(data)
    raise where.error(f"a number from {minimum:g} to {maximum:g}", data)


class Progress:
    """The position of each draw in a workload's turns."""

    def __init__(self, workload: Workload, draws: int) -> None:
        self.name, self.prompts, self.per_s = workload.name, workload.prompts, workload.per_s
        self._amounts = np.array([(t.prompt, t.answer, t.pause_s) for t in workload.turns])
        self._least = np.array([(0.0, 1 / t.per_s, 0.0) for t in workload.turns])
        self._turn, self._part = np.zeros((2, draws), np.intp)
        self._left = np.full(draws, self._amounts[0, 0])

    def advance(self, seconds: F64, prompt_s: F64, unit_s: F64) -> tuple[F64, F64]:
        """Advance by `seconds` [draws]; a token of a prompt takes `prompt_s`, a token of an answer
        or a run takes `unit_s`.

        Returns tokens of prompts and units, and the seconds of both, each [2, draws].
        """
        draws = np.arange(len(seconds))
        each = np.stack([prompt_s, unit_s, np.ones_like(unit_s)])
        done, spent = np.zeros((2, *each.shape))
        left = seconds.copy()
        while (busy := left > 0).any():
            per = np.maximum(each[self._part, draws], self._least[self._turn, self._part])
            need = self._left * per
            used = np.minimum(left, need)
            done[self._part, draws] += np.where(busy, used / per, 0)
            spent[self._part, draws] += np.where(busy, used, 0)
            ended = busy & (need <= left)
            self._left = np.where(busy, self._left - used / per, self._left)
            left = np.where(busy, left - used, 0)
            self._next(ended)
        return done[:2], spent[:2]

    def _next(self, ended: npt.NDArray[np.bool_]) -> None:
        part = self._part + ended
        turn = self._turn + (part == 3)
        self._part, self._turn = part % 3, turn % len(self._amounts)
        self._left = np.where(ended, self._amounts[self._turn, self._part], self._left)
