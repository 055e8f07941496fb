"""Comparing two values: how far apart they are, and whether that is within a tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.evaluation.evaluation import type_name
from halfbyte.evaluation.tolerances import Tolerance
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.files.model import SparseTensor

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Comparison:
    """The comparison of a value x with its reference w.

    Attributes
    ----------
    passed : bool
    tolerance : Tolerance
        The limits.
    type : str
        Type of the elements.
    size : int
        Number of elements of w.
    differing : int
        Number of elements beyond the tolerance.
    max_abs : float
        Largest |x - w|; infinite where one of them is not finite and the other differs.
    max_rel : float
        Largest |x - w| / max(|w|, rms(w)).
    largest : float
        Largest finite |w|, to compare `max_abs` with.
    cosine : float
        Cosine between all of x and all of w; 1 where both are zero.
    snr_db : float
        10 log10 of the ratio of the energies of w and of x - w; infinite where they are equal.
    note : str
        Why they cannot be compared, such as different shapes.
    worst : tuple of int
        The index where the error exceeds the tolerance most, or comes closest to it.
    """

    passed: bool
    tolerance: Tolerance
    type: str = ""
    size: int = 0
    differing: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    cosine: float = 1.0
    snr_db: float = math.inf
    note: str = ""
    worst: tuple[int, ...] = ()
    largest: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """JSON data; infinities and NaN are text."""
        t = self.tolerance
        numbers = {
            "max_abs_error": self.max_abs, "max_rel_error": self.max_rel, "cosine": self.cosine,
            "snr_db": self.snr_db, "largest": self.largest,
        }  # fmt: skip
        limits = {"rtol": t.rtol, "atol": t.atol, "min_cosine": t.min_cosine}
        return {
            "passed": self.passed, "type": self.type, "size": self.size,
            "differing": self.differing,
            **{key: json_number(value) for key, value in numbers.items()},
            "tolerance": {k: json_number(v) for k, v in limits.items()} | {"steps": t.steps},
            "note": self.note, "worst": list(self.worst),
        }  # fmt: skip


def json_number(value: float) -> float | str:
    """The number, or its name where JSON cannot express it."""
    return value if math.isfinite(value) else str(value)


def compare(actual: Any, expected: Any, tolerance: Tolerance) -> Comparison:
    """Compare values of graphs: arrays, lists of values, maps from labels to numbers, None."""
    if isinstance(expected, list) or isinstance(actual, list):
        return _compare_lists(actual, expected, tolerance)
    if isinstance(expected, dict) and isinstance(actual, dict):
        return _compare_maps(actual, expected, tolerance)
    if not (isinstance(actual, np.ndarray) and isinstance(expected, np.ndarray)):
        same = type(actual) is type(expected) and _same_objects(actual, expected)
        note = "" if same else f"expected {_kind(expected)}, found {_kind(actual)}"
        return Comparison(same, tolerance, type_name(expected), 1, int(not same), note=note)
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        note = f"expected {_kind(expected)}, found {_kind(actual)}"
        kind, size = type_name(expected), expected.size
        return Comparison(False, tolerance, kind, size, size, note=note)
    kind = type_name(expected)
    if expected.dtype.names:
        actual, expected = dtypes.widen(actual), dtypes.widen(expected)
    if expected.dtype.kind in "OSU":
        return _compare_texts(actual, expected, tolerance)
    if not expected.size:
        return Comparison(True, tolerance, kind)
    return _compare_numbers(actual, expected, tolerance, kind)


def _kind(value: Any) -> str:
    shape = list(value.shape) if isinstance(value, np.ndarray) else ""
    return "nothing" if value is None else f"{type_name(value)}{shape}"


def _same_objects(actual: Any, expected: Any) -> bool:
    if isinstance(expected, SparseTensor):
        return all(
            np.array_equal(getattr(actual, part), getattr(expected, part))
            for part in ("values", "indices", "shape")
        )
    return bool(actual == expected)


def _compare_lists(actual: Any, expected: Any, tolerance: Tolerance) -> Comparison:
    """Compare items; the result is that of the item with the largest error."""
    if not (isinstance(actual, list) and isinstance(expected, list)) or len(actual) != len(
        expected
    ):
        sizes = [len(v) if isinstance(v, list) else _kind(v) for v in (expected, actual)]
        note = f"expected a list of {sizes[0]}, found {sizes[1]}"
        return Comparison(False, tolerance, "list", 1, 1, note=note)
    items = [compare(x, w, tolerance) for x, w in zip(actual, expected, strict=True)]
    return min(
        items, key=lambda c: (c.passed, -c.max_abs), default=Comparison(True, tolerance, "list")
    )


def _compare_maps(
    actual: dict[Any, Any], expected: dict[Any, Any], tolerance: Tolerance
) -> Comparison:
    """Compare the numbers of two maps, such as those of ZipMap; their labels must be equal."""
    if actual.keys() != expected.keys():
        note = f"expected labels {list(expected)[:8]}, found {list(actual)[:8]}"
        return Comparison(False, tolerance, "map", len(expected), len(expected), note=note)
    x, w = (np.array([each[key] for key in expected]) for each in (actual, expected))
    return compare(x, w, tolerance)


def _compare_texts(actual: Array, expected: Array, tolerance: Tolerance) -> Comparison:
    wrong = np.atleast_1d(actual != expected)
    count = int(wrong.sum())
    worst = tuple(int(i) for i in np.argwhere(wrong)[0]) if count else ()
    return Comparison(not count, tolerance, "text", expected.size, count, worst=worst)


def _compare_numbers(actual: Array, expected: Array, tolerance: Tolerance, kind: str) -> Comparison:
    errors, beyond = _errors(actual, expected, tolerance)
    wide_type = np.complex128 if expected.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):  # casting a signalling NaN warns
        x, w = actual.astype(wide_type), expected.astype(wide_type)
        finite = np.isfinite(x) & np.isfinite(w)
        x, w = np.where(finite, x, 0), np.where(finite, w, 0)
        relative = np.where(errors > 0, errors / np.maximum(np.abs(w), _rms(w)), 0.0)
        cosine, wide = _cosine(x, w), _rms(w) > tolerance.atol  # otherwise the angle is noise
        noise = _energy(x - w) if np.isfinite(errors).all() else math.inf
        snr = _decibels(_energy(w), noise)
    misaligned = expected.dtype.kind in "fc" and wide and cosine < tolerance.min_cosine
    differing = int(np.count_nonzero(beyond > 0))
    return Comparison(
        not differing and not misaligned, tolerance, kind, expected.size, differing,
        float(errors.max()), float(relative.max()), cosine, snr,
        worst=tuple(int(i) for i in np.unravel_index(int(beyond.argmax()), expected.shape)),
        largest=float(np.abs(w).max()),
    )  # fmt: skip


def _decibels(energy: float, noise: float) -> float:
    if not noise:
        return math.inf
    return 10 * math.log10(energy / noise) if energy / noise > 0 else -math.inf


def _errors(actual: Array, expected: Array, tolerance: Tolerance) -> tuple[Array, Array]:
    """|x - w|, and by how much each exceeds the tolerance."""
    if expected.dtype.kind == "b":
        errors = (actual != expected).astype(np.float64)
        return errors, errors
    if expected.dtype.kind in "iu":
        larger, smaller = np.maximum(actual, expected), np.minimum(actual, expected)
        unsigned = np.dtype(f"u{expected.dtype.itemsize}")
        gaps = larger.astype(unsigned) - smaller.astype(unsigned)  # modulo 2^bits: exact
        errors = gaps.astype(np.float64)
        return errors, errors - tolerance.steps
    with np.errstate(all="ignore"):
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        errors = np.abs(actual.astype(wide) - expected.astype(wide))
        same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        errors = np.where(same, 0.0, np.where(np.isnan(errors), np.inf, errors))
        sizes = np.abs(expected.astype(wide))
        finite = np.isfinite(sizes)
        sizes = np.where(finite, sizes, 0.0)
        limits = tolerance.atol + tolerance.rtol * np.maximum(sizes, _rms(sizes))
        beyond = np.where(np.isfinite(errors), errors - limits, np.inf)
    return errors, beyond


def _rms(values: Array) -> float:
    return math.sqrt(_energy(values) / values.size)


def _energy(values: Array) -> float:
    """The sum of squares, without BLAS, whose threads wait for each other on a busy machine."""
    return float((values.real**2 + values.imag**2).sum()) if values.size else 0.0


def _cosine(x: Array, w: Array) -> float:
    lengths = math.sqrt(_energy(x)) * math.sqrt(_energy(w))
    if not lengths:
        return float(not x.any() and not w.any())
    return min(float((x * w.conj()).sum().real) / lengths, 1.0)
