"""Sizes that may differ between calls, while a program is captured for one set of them.

A `NamedSize` takes the place of an int in shapes: it has the value of the present call, and the
formula by which it follows from the sizes of inputs. What a capture decides by comparing such
numbers becomes a condition, so that the program serves all calls whose sizes fulfil the conditions
(as symbolic shapes do in Ansel et al. 2024, PyTorch 2). Whatever needs the number itself, such as
NumPy, raises `FixedSizeError`: then the capture is repeated with that size as it is.

Formulas are polynomials with whole coefficients in the sizes of inputs and in quotients and
remainders of such polynomials; `size_conditions` has what is known of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeGuard

import numpy as np

from halfbyte.core.buffer import Buffer, ComputedSize
from halfbyte.onnx.formulas import Terms, added, product, quotient_and_rest, scaled, written
from halfbyte.onnx.size_conditions import SizeConditions

LARGEST = 2**31 - 1  # kernels take 32 bits


class FixedSizeError(Exception):
    """The capture needs the number itself of sizes that follow from these variables."""

    def __init__(self, variables: Iterable[str]) -> None:
        super().__init__("sizes that differ between calls are needed as numbers")
        self.variables = frozenset(variables)


class Later:
    """A constant that is computed for the sizes of each run."""

    def now(self) -> np.ndarray[Any, Any]:
        """The array for the sizes of the present run, or of the captured call."""
        raise NotImplementedError


class Sizes(SizeConditions):
    """The sizes of one capture, and the conditions under which its program is right.

    Parameters
    ----------
    values : mapping of str to int
        The variables, which are Python identifiers, with their values in the present call.
    largest : mapping of str to int
        The most that each may be.
    places : mapping of str to sequence of (str, int)
        The inputs and axes whose size each is.

    Attributes
    ----------
    values : dict of str to int
        During a capture, those of its call; afterwards those of the present run.
    recording : bool
        Whether comparisons become conditions: during the capture.
    constants : dict of Buffer to Later
        The constants of the program whose numbers depend on sizes.
    """

    def __init__(
        self,
        values: Mapping[str, int],
        largest: Mapping[str, int],
        places: Mapping[str, Sequence[tuple[str, int]]],
    ) -> None:
        super().__init__(values, largest)
        self.places = dict(places)
        self.recording = True
        self.constants: dict[Buffer, Later] = {}

    def variable(self, name: str) -> Any:
        """The size of this name."""
        return NamedSize(self, {(name,): 1}, self.values[name])

    def size(self, terms: Terms, value: int) -> Any:
        """A size with this formula; an int if it is one."""
        terms = {factors: number for factors, number in terms.items() if number}
        return value if not terms or set(terms) == {()} else NamedSize(self, terms, value)

    def quotient(self, x: Terms, y: Terms, value: int, sign: str) -> Any:
        """``x // y`` or ``x % y``, of which no formula of polynomials is known."""
        if self.bounds(y)[0] < 1:
            raise FixedSizeError(self.variables(x) | self.variables(y))
        return self.size({(self.quotient_factor(x, y, sign),): 1}, value)

    def computed(self, size: NamedSize) -> ComputedSize:
        """A named size of a program, with the same formula.

        Raises
        ------
        FixedSizeError
            It may be negative, or more than kernels take.
        """
        terms = self.simplest(size.terms)
        low, high = self.bounds(terms)
        if size.value < 0 or max(-low, high) > LARGEST:
            raise FixedSizeError(self.variables(terms))
        return ComputedSize(written(terms), high, functools.partial(self.value, terms))


class NamedSize:
    """A whole number that follows from the sizes of inputs; see the module's description.

    It passes for an int in Python, but not in C, so no number leaves it unseen.
    """

    __slots__ = ("terms", "under", "value")
    __array_ufunc__ = None  # NumPy's numbers leave arithmetic to this class

    def __init__(self, under: Sizes, terms: Terms, value: int) -> None:
        self.under, self.terms, self.value = under, terms, value

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    def now(self) -> int:
        """The number: of the captured call, or afterwards of the present run."""
        under = self.under
        return self.value if under.recording else under.value(self.terms, under.values)

    # ---- the number itself -----------------------------------------------------------------------

    def __index__(self) -> int:
        if self.under.recording:
            raise FixedSizeError(self.under.variables(self.terms))
        return self.now()

    __int__ = __trunc__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __reduce__(self) -> NoReturn:
        raise FixedSizeError(self.under.variables(self.terms))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__index__(), name)

    def __str__(self) -> str:
        return written(self.terms)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec) if self.under.recording else format(self.now(), spec)

    # ---- arithmetic ------------------------------------------------------------------------------

    def _with(
        self, other: Any, combine: Callable[[Terms, Terms], Terms], number: Callable[..., int]
    ) -> Any:
        theirs = _terms(other)
        if theirs is None:
            return NotImplemented
        value = number(self.now(), _now(other))
        if not self.under.recording:
            return value
        return self.under.size(combine(self.terms, theirs), value)

    def __add__(self, other: Any) -> Any:
        return self._with(other, added, lambda a, b: a + b)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        return self._with(other, product, lambda a, b: a * b)

    __rmul__ = __mul__

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: added(a, scaled(b, -1)), lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: added(b, scaled(a, -1)), lambda a, b: b - a)

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __floordiv__(self, other: Any) -> Any:
        return _divided(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _divided(other, self)

    def __mod__(self, other: Any) -> Any:
        return _remainder(self, other)

    def __rmod__(self, other: Any) -> Any:
        return _remainder(other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __truediv__(self, other: Any) -> float:
        return float(self) / float(other)

    def __rtruediv__(self, other: Any) -> float:
        return float(other) / float(self)

    def __pow__(self, power: int) -> Any:
        return math.prod([self] * power) if type(power) is int and power > 0 else int(self) ** power

    # ---- comparisons -----------------------------------------------------------------------------

    def _compare(self, other: Any, sign: str, holds: Callable[[int, int], bool]) -> Any:
        theirs = _terms(other)
        if theirs is None:
            if not isinstance(other, float):
                return NotImplemented
            return holds(0 if math.isinf(other) else self.__index__(), other)  # type: ignore[arg-type]
        met = holds(self.now(), _now(other))
        if not self.under.recording:
            return met
        return self.under.decide(added(self.terms, scaled(theirs, -1)), sign, met)

    def __eq__(self, other: object) -> Any:
        return self._compare(other, "==", lambda a, b: a == b)

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, "<", lambda a, b: a < b)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, "<=", lambda a, b: a <= b)

    def __gt__(self, other: Any) -> Any:
        less = self.__le__(other)
        return less if less is NotImplemented else not less

    def __ge__(self, other: Any) -> Any:
        less = self.__lt__(other)
        return less if less is NotImplemented else not less

    def __bool__(self) -> bool:
        return bool(self != 0)


def _by_number(name: str) -> Callable[..., Any]:
    """An operator of ints that no formula has: it needs the number."""
    return lambda self, *others: getattr(int(self), name)(*map(int, others))


for _name in ("lshift", "rshift", "and", "or", "xor"):
    for _side in ("", "r"):
        setattr(NamedSize, f"__{_side}{_name}__", _by_number(f"__{_side}{_name}__"))
for _name in ("__invert__", "__round__", "__floor__", "__ceil__", "__rpow__"):
    setattr(NamedSize, _name, _by_number(_name))


def is_named(size: Any) -> TypeGuard[NamedSize]:
    """Whether a number may differ between calls."""
    return type(size) is NamedSize


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """As NumPy's, also of sizes that may differ between calls.

    Raises
    ------
    ValueError
        They do not fit each other.
    """
    if not any(is_named(d) for shape in shapes for d in shape):
        return np.broadcast_shapes(*map(tuple, shapes))
    rank = max(map(len, shapes))
    result: list[int] = []
    for axis in range(-rank, 0):
        sizes = [shape[axis] for shape in shapes if -axis <= len(shape)]
        wide = [d for d in sizes if d != 1]
        if any(d != wide[0] for d in wide[1:]):
            raise ValueError(f"shapes {[list(shape) for shape in shapes]} do not broadcast")
        result.append(wide[0] if wide else 1)
    return tuple(result)


def _terms(value: Any) -> Terms | None:
    """The formula of a number; None of what is no whole number."""
    if type(value) is NamedSize:
        return value.terms
    if isinstance(value, int):
        return {(): int(value)} if value else {}
    if hasattr(value, "__index__") and not hasattr(value, "__len__"):  # NumPy's integers
        return {(): value.__index__()}
    return None


def _now(value: Any) -> int:
    return value.now() if type(value) is NamedSize else value.__index__()


def _parts(x: Any, y: Any) -> tuple[Sizes, Terms, Terms, Terms, Terms] | None:
    under = x.under if type(x) is NamedSize else y.under
    a, b = _terms(x), _terms(y)
    if a is None or b is None:
        return None
    if under.recording and not y > 0:
        raise FixedSizeError(under.variables(b) | under.variables(a))
    return under, a, b, *quotient_and_rest(a, b)


def _divided(x: Any, y: Any) -> Any:
    if (parts := _parts(x, y)) is None:
        return NotImplemented
    under, _, b, quotient, rest = parts
    value = _now(x) // _now(y)
    if not under.recording:
        return value
    if not rest:
        return under.size(quotient, value)
    low, high = under.bounds(rest)
    if low >= 0 and high < under.bounds(b)[0]:
        return under.size(quotient, value)
    left = under.value(rest, under.values) // _now(y)
    return under.size(quotient, value - left) + under.quotient(rest, b, left, "//")


def _remainder(x: Any, y: Any) -> Any:
    if (parts := _parts(x, y)) is None:
        return NotImplemented
    under, _, b, _, rest = parts
    value = _now(x) % _now(y)
    if not under.recording:
        return value
    low, high = under.bounds(rest)
    if low >= 0 and high < under.bounds(b)[0]:
        return under.size(rest, value)
    return under.quotient(rest, b, value, "%")
