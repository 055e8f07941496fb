"""Running a model on samples: ranges of its values, and sums over the rows that products read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from halfbyte.errors import HalfbyteError
from halfbyte.quantize.compensation import Gram
from halfbyte.quantize.onnx.editor import Editor
from halfbyte.quantize.onnx.nodes import element_type
from halfbyte.quantize.onnx.ranges import METHODS, Histogram
from halfbyte.quantize.onnx.rewriter import find_product
from halfbyte.quantize.onnx.running import running_editor
from halfbyte.quantize.onnx.samples import Feeds
from halfbyte.quantize.tuning.blas import single_threaded

F32 = npt.NDArray[np.float32]

GRAM_BYTES = 1 << 30  # of all Gram matrices that are in memory


class Calibration:
    """Samples, and how ranges are derived from the values on them.

    Parameters
    ----------
    samples : sequence of feeds
    method : str
        "minmax", "percentile" or "entropy", see `halfbyte.quantize.onnx.ranges`.
    """

    def __init__(self, samples: Sequence[Feeds], method: str = "minmax") -> None:
        if method not in METHODS:
            raise HalfbyteError(f"calibration '{method}': expected one of {list(METHODS)}")
        self.samples, self.method = samples, method
        self._known: dict[str, tuple[float, float]] = {}
        self._grams: dict[str, Gram | None] = {}

    def ranges(self, editor: Editor, names: Sequence[str]) -> Mapping[str, tuple[float, float]]:
        """The range of each value, by the method; those known from an earlier call are kept."""
        counts = self.method != "minmax"
        histograms = {name: Histogram(counts=counts) for name in names if name not in self._known}
        if not histograms:
            return self._known
        run = running_editor(editor, list(histograms))
        try:
            for feeds in self.samples:
                values = run(feeds)
                for name, histogram in histograms.items():
                    histogram.add(values[name])
        finally:
            run.close()
        self._known |= {name: METHODS[self.method](one) for name, one in histograms.items()}
        return self._known

    def squares(self, editor: Editor) -> dict[str, F32]:
        """Sums of squares of the channels (the last axis) of values that products read."""
        main = editor.main
        products = (find_product(editor, main, node) for node in main.graph.node)
        names = sorted(
            {p.node.input[0] for p in products if p and main.constant(p.node.input[0]) is None}
        )
        sums: dict[str, npt.NDArray[np.float64]] = {}
        run = running_editor(editor, names)
        try:
            for feeds in self.samples:
                for name, value in run(feeds).items():
                    flat = value.astype(np.float64).reshape(-1, value.shape[-1])
                    sums[name] = sums.get(name, np.zeros(1)) + np.square(flat).sum(axis=0)
        finally:
            run.close()
        with np.errstate(over="ignore"):
            return {name: total.astype(np.float32) for name, total in sums.items()}

    def gram(self, editor: Editor, name: str, sizes: Mapping[str, int]) -> Gram | None:
        """The Gram matrix of a value that products read; None where it is too large, or infinite.

        All entries of a batch count the same, however many rows of the value each has: a text's
        vector is the mean of its tokens', in which each of a few counts more than one of many.
        The number of rows is that of equal ones that would say as much (Kish 1965).

        `sizes` has the channels of all values, in the order in which they will be asked for: one
        run computes as many as `GRAM_BYTES` hold, in place of those before.
        """
        if name not in self._grams:
            names = list(sizes)
            together = _within(names[names.index(name) :], sizes)
            if not together:
                return None
            self._grams.clear()
            self._measure_grams(editor, together)
        return self._grams.get(name)

    def _measure_grams(self, editor: Editor, sizes: Mapping[str, int]) -> None:
        sums = {name: np.zeros((size, size), np.float32) for name, size in sizes.items()}
        weights = {name: np.zeros(2) for name in sizes}  # of rows, and their squares
        run = running_editor(editor, list(sizes))
        try:
            for feeds in self.samples:
                values, entries = run(feeds), _entries(feeds)
                with single_threaded(), np.errstate(over="ignore", invalid="ignore"):
                    for name, size in sizes.items():
                        x = values[name].astype(np.float32, copy=False).reshape(-1, size)
                        weight = entries / max(len(x), 1)
                        sums[name] += np.float32(weight) * (x.T @ x)
                        weights[name] += len(x) * weight, len(x) * weight**2
        finally:
            run.close()
        for name, matrix in sums.items():
            total, squares = weights[name]
            rows = round(total**2 / squares) if squares else 0
            self._grams[name] = Gram(matrix, rows) if np.isfinite(matrix).all() else None

    def tops(self, editor: Editor) -> dict[str, float]:
        """The largest finite magnitude of every float32 value of the main graph."""
        main = editor.main
        names = [
            name
            for node in main.graph.node
            for name in node.output
            if name and element_type(editor.types, name) in (0, TensorProto.FLOAT)
        ]
        tops: dict[str, float] = {}
        run = running_editor(editor, names)
        try:
            for feeds in self.samples:
                for name, value in run(feeds).items():
                    if isinstance(value, np.ndarray) and value.dtype == np.float32 and value.size:
                        size = np.abs(value[np.isfinite(value)])
                        tops[name] = max(tops.get(name, 0.0), float(size.max(initial=0)))
        finally:
            run.close()
        return tops


def _entries(feeds: Feeds) -> int:
    """The entries of a batch: the length of the inputs' first axis."""
    return max((len(x) for x in feeds.values() if x.ndim), default=1)


def _within(names: Sequence[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """The first of some values with their sizes, so many that `GRAM_BYTES` hold their matrices."""
    left, first = GRAM_BYTES, dict[str, int]()
    for name in names:
        left -= 4 * sizes[name] ** 2
        if left < 0:
            break
        first[name] = sizes[name]
    return first
