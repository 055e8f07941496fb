"""What a model is asked to do over time: turns of a prompt, an answer, and time to read it.

A file of turns is TOML (`[[turn]]`) or CSV (a header and a line a turn), both with the columns
`prompt` and `answer` in tokens and `pause_s` in seconds. It may come from anywhere.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from halfbyte.device import reading
from halfbyte.device.reading import Reader, Where, Words
from halfbyte.errors import ProfileError

F64 = npt.NDArray[np.float64]

MOST_TURNS = 1_000_000
COLUMNS = ("prompt", "answer", "pause_s")
_BOUNDS = {"prompt": (0, 1e6), "answer": (0, 1e6), "pause_s": (0.1, 1e6)}


def _bare(key: str) -> Reader:
    """A number of `key` without a source."""

    def read(found: object, where: Where) -> float:
        return _bounded(key, found, where)

    return read


@dataclass(frozen=True)
class Turn:
    """Tokens of a prompt and of its answer, then seconds in which nothing is computed."""

    prompt: Annotated[float, _bare("prompt")]
    answer: Annotated[float, _bare("answer")]
    pause_s: Annotated[float, _bare("pause_s")]


@dataclass(frozen=True)
class _File:
    turn: Annotated[tuple[Turn, ...], reading.tables(Turn, 1, MOST_TURNS)]


@dataclass(frozen=True)
class Workload:
    """Turns, one after the other, again and again until the time is over."""

    name: str
    turns: tuple[Turn, ...]

    @property
    def prompts(self) -> bool:
        """Whether there is any prompt."""
        return any(turn.prompt for turn in self.turns)


CONTINUOUS = Workload("continuous", (Turn(0.0, inf, 0.0),))
CHAT = Workload("chat", (Turn(200.0, 150.0, 20.0),))


def load_workload(name: str) -> Workload:
    """`continuous` (an answer without an end), `chat`, or a file of turns.

    Raises
    ------
    ProfileError
        The file is not as it should be; the sentence has file, key or line, expected and found.
    OSError
        It cannot be read.
    """
    known = {workload.name: workload for workload in (CONTINUOUS, CHAT)}
    if name in known:
        return known[name]
    path = Path(name)
    if path.suffix not in (".toml", ".csv"):
        words = ", ".join(known)
        raise ProfileError(f"workload {name!r}: expected {words}, or a .toml or .csv file")
    toml = path.suffix == ".toml"
    turns = reading.read_file(_File, path).turn if toml else tuple(_read_csv(path))
    if not any(turn.answer for turn in turns):
        raise Where(str(path), "answer").error("a turn with an answer", Words("0 in all"))
    return Workload(path.name, turns)


def _read_csv(path: Path) -> Iterator[Turn]:
    where = Where(str(path))
    with path.open("rb") as file:
        data = file.read(reading.MOST_BYTES + 1)
    if len(data) > reading.MOST_BYTES:
        raise where.error(f"a file of at most {reading.MOST_BYTES} bytes", Words("more"))
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise where.error("a table of text with commas", Words(str(error)[:200])) from None
    head = [cell.strip() for cell in rows[0]] if rows else []
    if sorted(head) != sorted(COLUMNS):
        raise Where(str(path), "line 1").error(f"the columns {','.join(COLUMNS)}", ",".join(head))
    if len(rows) < 2:
        raise Where(str(path), "line 2").error("a turn", None)
    for line, row in enumerate(rows[1:], 2):
        place = Where(str(path), f"line {line}")
        if len(row) != len(head):
            raise place.error(f"{len(head)} numbers", Words(f"{len(row)}"))
        cells = zip(head, row, strict=True)
        yield Turn(**{key: _bounded(key, _number(cell), place.at(key)) for key, cell in cells})


def _number(cell: str) -> object:
    try:
        return float(cell)
    except ValueError:
        return cell


def _bounded(key: str, found: Any, where: Where) -> float:
    """A number within the bounds of its column; NaN is in none."""
    least, most = _BOUNDS[key]
    number = isinstance(found, (int, float)) and not isinstance(found, bool)
    if number and least <= found <= most:
        return float(found)
    raise where.error(f"a number from {least:g} to {most:g}", found)


class Progress:
    """Where in the turns each draw is."""

    def __init__(self, workload: Workload, draws: int) -> None:
        self._amounts = np.array([(t.prompt, t.answer, t.pause_s) for t in workload.turns])
        self._turn, self._part = np.zeros((2, draws), np.intp)
        self._left = np.full(draws, self._amounts[0, 0])

    def advance(self, seconds: F64, prompt_s: F64, token_s: F64) -> tuple[F64, F64]:
        """Go on for `seconds` [draws], where a token of a prompt and of an answer take so long.

        Returns tokens of prompts and answers, and seconds of both, each [2, draws].
        """
        draws = np.arange(len(seconds))
        each = np.stack([prompt_s, token_s, np.ones_like(token_s)])
        done, spent = np.zeros((2, *each.shape))
        left = seconds.copy()
        while (busy := left > 0).any():
            per = each[self._part, draws]
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
