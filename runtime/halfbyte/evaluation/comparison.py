"""Two values beside each other: how far apart, and whether that is within a tolerance."""

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
    """What was found between a value x and its reference w.

    Attributes
    ----------
    passed : bool
    tolerance : Tolerance
        What was allowed.
    type : str
        Of the elements.
    size : int
        Elements of w.
    differing : int
        Elements beyond the tolerance.
    max_abs : float
        Largest |x - w|; infinite where one of them is not a finite number and the other is not
        the same.
    max_rel : float
        Largest |x - w| / max(|w|, rms(w)).
    largest : float
        Largest |w| that is finite, which `max_abs` is to be seen beside.
    cosine : float
        Between all of x and all of w; 1 where both are zero.
    snr_db : float
        10 log10 of the energy of w over that of x - w; infinite where they are the same.
    note : str
        Why they cannot be compared at all, such as other shapes.
    worst : tuple of int
        Where the error is furthest beyond the tolerance, or nearest to it.
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
        """Plain data; infinities and NaN, which JSON lacks, are text."""
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
    """The number, or its name where JSON has none for it."""
    return value if math.isfinite(value) else str(value)


def compare(found: Any, wanted: Any, tolerance: Tolerance) -> Comparison:
    """Compare values as graphs have them: arrays, lists of values, None."""
    if isinstance(wanted, list) or isinstance(found, list):
        return _compare_lists(found, wanted, tolerance)
    if not (isinstance(found, np.ndarray) and isinstance(wanted, np.ndarray)):
        same = type(found) is type(wanted) and _same_objects(found, wanted)
        note = "" if same else f"expected {_kind(wanted)}, found {_kind(found)}"
        return Comparison(same, tolerance, type_name(wanted), 1, int(not same), note=note)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        note = f"expected {_kind(wanted)}, found {_kind(found)}"
        kind, size = type_name(wanted), wanted.size
        return Comparison(False, tolerance, kind, size, size, note=note)
    kind = type_name(wanted)
    if wanted.dtype.names:
        found, wanted = dtypes.widen(found), dtypes.widen(wanted)
    if wanted.dtype.kind in "OSU":
        return _compare_texts(found, wanted, tolerance)
    if not wanted.size:
        return Comparison(True, tolerance, kind)
    return _compare_numbers(found, wanted, tolerance, kind)


def _kind(value: Any) -> str:
    shape = list(value.shape) if isinstance(value, np.ndarray) else ""
    return "nothing" if value is None else f"{type_name(value)}{shape}"


def _same_objects(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, SparseTensor):
        return all(
            np.array_equal(getattr(found, part), getattr(wanted, part))
            for part in ("values", "indices", "shape")
        )
    return bool(found == wanted)


def _compare_lists(found: Any, wanted: Any, tolerance: Tolerance) -> Comparison:
    """The item that is furthest off speaks for the list."""
    if not (isinstance(found, list) and isinstance(wanted, list)) or len(found) != len(wanted):
        sizes = [len(v) if isinstance(v, list) else _kind(v) for v in (wanted, found)]
        note = f"expected a list of {sizes[0]}, found {sizes[1]}"
        return Comparison(False, tolerance, "list", 1, 1, note=note)
    items = [compare(x, w, tolerance) for x, w in zip(found, wanted, strict=True)]
    return min(
        items, key=lambda c: (c.passed, -c.max_abs), default=Comparison(True, tolerance, "list")
    )


def _compare_texts(found: Array, wanted: Array, tolerance: Tolerance) -> Comparison:
    wrong = np.atleast_1d(found != wanted)
    count = int(wrong.sum())
    worst = tuple(int(i) for i in np.argwhere(wrong)[0]) if count else ()
    return Comparison(not count, tolerance, "text", wanted.size, count, worst=worst)


def _compare_numbers(found: Array, wanted: Array, tolerance: Tolerance, kind: str) -> Comparison:
    errors, beyond = _errors(found, wanted, tolerance)
    wide_type = np.complex128 if wanted.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):  # a signalling NaN warns as it is cast
        x, w = found.astype(wide_type), wanted.astype(wide_type)
        finite = np.isfinite(x) & np.isfinite(w)
        x, w = np.where(finite, x, 0), np.where(finite, w, 0)
        relative = np.where(errors > 0, errors / np.maximum(np.abs(w), _rms(w)), 0.0)
        cosine, wide = _cosine(x, w), _rms(w) > tolerance.atol  # else noise has any angle
        noise = _energy(x - w) if np.isfinite(errors).all() else math.inf
        snr = _decibels(_energy(w), noise)
    turned = wanted.dtype.kind in "fc" and wide and cosine < tolerance.min_cosine
    differing = int(np.count_nonzero(beyond > 0))
    return Comparison(
        not differing and not turned, tolerance, kind, wanted.size, differing,
        float(errors.max()), float(relative.max()), cosine, snr,
        worst=tuple(int(i) for i in np.unravel_index(int(beyond.argmax()), wanted.shape)),
        largest=float(np.abs(w).max()),
    )  # fmt: skip


def _decibels(energy: float, noise: float) -> float:
    if not noise:
        return math.inf
    return 10 * math.log10(energy / noise) if energy / noise > 0 else -math.inf


def _errors(found: Array, wanted: Array, tolerance: Tolerance) -> tuple[Array, Array]:
    """|x - w|, and by how much each is more than it may be."""
    if wanted.dtype.kind == "b":
        errors = (found != wanted).astype(np.float64)
        return errors, errors
    if wanted.dtype.kind in "iu":
        larger, smaller = np.maximum(found, wanted), np.minimum(found, wanted)
        unsigned = np.dtype(f"u{wanted.dtype.itemsize}")
        gaps = larger.astype(unsigned) - smaller.astype(unsigned)  # modulo 2^bits: exact
        errors = gaps.astype(np.float64)
        return errors, errors - tolerance.steps
    with np.errstate(all="ignore"):
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
        errors = np.abs(found.astype(wide) - wanted.astype(wide))
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        errors = np.where(same, 0.0, np.where(np.isnan(errors), np.inf, errors))
        sizes = np.abs(wanted.astype(wide))
        finite = np.isfinite(sizes)
        sizes = np.where(finite, sizes, 0.0)
        limits = tolerance.atol + tolerance.rtol * np.maximum(sizes, _rms(sizes))
        beyond = np.where(np.isfinite(errors), errors - limits, np.inf)
    return errors, beyond


def _rms(values: Array) -> float:
    return math.sqrt(_energy(values) / values.size)


def _energy(values: Array) -> float:
    """The sum of squares; not BLAS's, whose threads wait for each other on a busy machine."""
    return float((values.real**2 + values.imag**2).sum()) if values.size else 0.0


def _cosine(x: Array, w: Array) -> float:
    lengths = math.sqrt(_energy(x)) * math.sqrt(_energy(w))
    if not lengths:
        return float(not x.any() and not w.any())
    return min(float((x * w.conj()).sum().real) / lengths, 1.0)
