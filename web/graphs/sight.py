"""Reads the text in a picture: one model finds lines, another reads each of them.

The models are PaddleOCR's (PP-OCRv4, Apache 2.0). A line is a horizontal box; text that stands
upright or askew is not straightened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError
from halfbyte.web.graphs.graph_model import GraphModel

F32Array = npt.NDArray[np.float32]
Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels, the last two exclusive

MULTIPLE = 32  # pixels, of which the sides of the finder's picture are multiples
HEIGHT, WIDTHS = 48, (160, 320, 640, 960)  # pixels of a line; few widths, as each has a program
_INK, _CERTAIN = 0.3, 0.5  # probabilities: of a pixel of text, and the mean of a box
_GROWTH = 1.6  # the finder sees the middle of each line; its border is area * _GROWTH / perimeter
_SMALLEST, _MOST = 4, 200  # pixels of a side; lines
_READABLE = 0.5  # mean probability of a line's characters


@dataclass(frozen=True)
class Line:
    """A line of text, its box in the picture, and the mean probability of its characters."""

    text: str
    box: Box
    score: float


class Sight:
    """Finds and reads lines; `finder` and `reader` are the two models."""

    def __init__(self, finder: GraphModel, reader: GraphModel) -> None:
        self.finder, self.reader = finder, reader
        listed = reader.session.get_modelmeta().custom_metadata_map.get("character", "")
        if not listed:
            raise HalfbyteError(f"{reader.name}: expected the metadata 'character', a list")
        self._characters = ["", *listed.split("\n"), " "]

    async def read(self, pixels: Any, height: int, width: int) -> list[Line]:
        """The lines of a picture [height, width, 4] of uint8, from top to bottom.

        Height and width must be multiples of `MULTIPLE`.
        """
        data = np.frombuffer(pixels, np.uint8)
        if data.size != height * width * 4 or height % MULTIPLE or width % MULTIPLE:
            raise HalfbyteError(f"{data.size} bytes of pixels: expected {height} x {width} x 4")
        picture = data.reshape(height, width, 4)[..., 2::-1].astype(np.float32)  # blue first
        [found] = self.finder.run({self.finder.inputs[0].name: _input(picture)})
        lines = []
        for box in boxes(found.reshape(height, width)):
            await asyncio.sleep(0)
            text, score = self._line(picture, box)
            if text.strip() and score >= _READABLE:
                lines.append(Line(text, box, score))
        return lines

    def _line(self, picture: F32Array, box: Box) -> tuple[str, float]:
        left, top, right, bottom = box
        width = min(max(round(HEIGHT * (right - left) / (bottom - top)), 1), WIDTHS[-1])
        room = next(size for size in WIDTHS if size >= width)
        x = np.zeros((1, 3, HEIGHT, room), np.float32)
        x[..., :width] = _input(resized(picture[top:bottom, left:right], HEIGHT, width))
        [scores] = self.reader.run({self.reader.inputs[0].name: x})
        return self._decoded(scores[0])

    def _decoded(self, scores: F32Array) -> tuple[str, float]:
        """The text of scores [steps, characters]: repetitions and blanks fall away."""
        best = scores.argmax(1)
        new = (best != 0) & (best != np.concatenate([[0], best[:-1]]))
        if scores.shape[1] != len(self._characters):
            raise HalfbyteError(
                f"{self.reader.name}: {scores.shape[1]} classes, {len(self._characters)} characters"
            )
        text = "".join(self._characters[i] for i in best[new])
        return text, float(scores.max(1)[new].mean()) if new.any() else 0.0


def _input(picture: F32Array) -> F32Array:
    """A picture [height, width, 3] of 0..255 as [1, 3, height, width] of -1..1."""
    return np.ascontiguousarray((picture / np.float32(127.5) - 1).transpose(2, 0, 1)[None])


def resized(picture: F32Array, height: int, width: int) -> F32Array:
    """A picture [h, w, 3] in another size, by linear interpolation."""
    for axis, size in ((0, height), (1, width)):
        old = picture.shape[axis]
        at = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
        low = at.astype(np.intp)
        part = (at - low).astype(np.float32).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        high = np.minimum(low + 1, old - 1)
        picture = picture.take(low, axis) * (1 - part) + picture.take(high, axis) * part
    return picture


def boxes(found: F32Array) -> list[Box]:
    """Boxes of lines in probabilities [height, width] of text, from top to bottom."""
    height, width = found.shape
    result = []
    for left, top, right, bottom in regions(found > _INK)[:_MOST]:
        h, w = bottom - top, right - left
        if min(h, w) < _SMALLEST or found[top:bottom, left:right].mean() < _CERTAIN:
            continue
        grown = round(h * w * _GROWTH / (2 * (h + w)))
        result.append((max(left - grown, 0), max(top - grown, 0), min(right + grown, width),
                       min(bottom + grown, height)))  # fmt: skip
    return sorted(result, key=lambda box: (box[1] + box[3], box[0]))


def regions(mask: npt.NDArray[np.bool_]) -> list[Box]:
    """Boxes of the connected regions of a mask [height, width]."""
    parents: list[int] = []
    bounds: list[list[int]] = []
    above: Sequence[tuple[int, int, int]] = ()

    def root(i: int) -> int:
        while parents[i] != i:
            parents[i] = i = parents[parents[i]]
        return i

    for y, row in enumerate(np.diff(mask.astype(np.int8), axis=1, prepend=0, append=0)):
        runs = []
        for first, last in zip(np.flatnonzero(row == 1), np.flatnonzero(row == -1), strict=True):
            parents.append(len(parents))
            bounds.append([int(first), y, int(last), y + 1])
            runs.append((int(first), int(last), len(parents) - 1))
            for other_first, other_last, other in above:
                if other_first < last and first < other_last:
                    parents[root(runs[-1][2])] = root(other)
        above = runs
    merged: dict[int, list[int]] = {}
    for i, (left, top, right, bottom) in enumerate(bounds):
        box = merged.setdefault(root(i), [left, top, right, bottom])
        box[:] = [min(box[0], left), min(box[1], top), max(box[2], right), max(box[3], bottom)]
    return [(left, top, right, bottom) for left, top, right, bottom in merged.values()]
