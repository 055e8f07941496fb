"""Constants that depend on sizes which differ between calls (`sizes`), while a program is captured.

A `SizedArray` stands for an array. Small ones of whole numbers, such as those that Shape, Gather
and Concat make of shapes, know the formula of each number. Of others, such as the rows of a table
for all positions, only the shape has formulas: their numbers are computed before the first run with
other sizes, by the same nodes. To everything else they pass for arrays, and raise `FixedSizeError`
where the numbers are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from halfbyte.onnx.reference._shapes import blank
from halfbyte.onnx.sizes import FixedSizeError, Later, Sizes, is_named

Shape = tuple[int, ...]


class SizedArray(Later):
    """An array of which numbers, or the shape, depend on sizes.

    Parameters
    ----------
    under : Sizes
    dtype : np.dtype
    shape : tuple of int
    numbers : array of objects, optional
        Its numbers, if they are known: ints and `NamedSize`.
    compute : callable, optional
        Computes the array for the sizes of the present run, if `numbers` are not known.
    variables : set of str
        On which the numbers depend.
    """

    def __init__(
        self,
        under: Sizes,
        dtype: np.dtype[Any],
        shape: Shape,
        numbers: np.ndarray[Any, Any] | None = None,
        compute: Callable[[], np.ndarray[Any, Any]] | None = None,
    ) -> None:
        self.under, self.dtype, self.shape = under, dtype, shape
        self.numbers = numbers
        self._compute = compute
        self._kept: tuple[tuple[int, ...], np.ndarray[Any, Any]] | None = None

    def __array_ufunc__(self, *inputs: Any, **keywords: Any) -> Any:
        raise FixedSizeError(self._variables())

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ndarray

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def now(self) -> np.ndarray[Any, Any]:
        sizes = tuple(self.under.values.values())
        if self._kept is None or self._kept[0] != sizes:
            self._kept = sizes, self._computed()
        return self._kept[1]

    def _computed(self) -> np.ndarray[Any, Any]:
        if self._compute is not None:
            return self._compute()
        flat = [n.now() if is_named(n) else n for n in self.numbers.reshape(-1)]  # type: ignore[union-attr]
        return np.array(flat, self.dtype).reshape(self.shape)

    def tolist(self) -> Any:
        """The numbers, if they have formulas."""
        return self._known().tolist()

    def reshape(self, *shape: Any) -> Any:
        """The numbers in another shape, if they have formulas."""
        return self._as(self._known().reshape(*shape))

    def __getitem__(self, key: Any) -> Any:
        return self._as(self._known()[key])

    def __iter__(self) -> Iterator[Any]:
        return iter([self._as(row) for row in self._known()])

    def __len__(self) -> int:
        return self.shape[0]

    def item(self) -> Any:
        """The only number."""
        return self._known().item()

    def _as(self, numbers: Any) -> Any:
        if isinstance(numbers, np.ndarray) and type(numbers) is np.ndarray:
            return with_numbers(self.under, numbers, self.dtype)
        return numbers

    def _known(self) -> np.ndarray[Any, Any]:
        if self.numbers is None:
            raise FixedSizeError(self.under.values)
        return self.numbers

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        if self.under.recording:
            raise FixedSizeError(self._variables())
        return np.asarray(self.now(), dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise FixedSizeError(self._variables())

    def _variables(self) -> set[str]:
        if self.numbers is None:
            return set(self.under.values)
        named = [n for n in self.numbers.reshape(-1) if is_named(n)]
        return {v for n in named for v in self.under.variables(n.terms)}


def _fixed(array: SizedArray, *others: Any) -> Any:
    """Raises, since the operator needs the numbers."""
    raise FixedSizeError(array._variables())


for _name in (
    "bool", "int", "index", "float", "contains", "setitem", "neg", "abs", "invert",
    "eq", "ne", "lt", "le", "gt", "ge", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv",
    "rtruediv", "floordiv", "rfloordiv", "mod", "rmod", "pow", "rpow", "matmul", "rmatmul", "and",
    "rand", "or", "ror", "xor", "rxor", "lshift", "rlshift", "rshift", "rrshift",
):  # fmt: skip
    setattr(SizedArray, f"__{_name}__", _fixed)


def is_sized(value: Any) -> bool:
    """Whether a constant depends on sizes that differ between calls."""
    return type(value) is SizedArray


def now(value: Any) -> Any:
    """A constant for the sizes of the present run."""
    return value.now() if type(value) is SizedArray else value


def empty(shape: Shape, dtype: np.dtype[Any]) -> Any:
    """An array that is read for its shape and dtype only."""
    named = next((d for d in shape if is_named(d)), None)
    return blank(shape, dtype) if named is None else SizedArray(named.under, dtype, shape)


def with_numbers(under: Sizes | None, numbers: Any, dtype: Any) -> Any:
    """An array of these numbers: a real one, unless some of them may differ between calls."""
    objects = np.empty(numbers.shape if isinstance(numbers, np.ndarray) else (), object)
    objects[...] = numbers
    flat = objects.reshape(-1).tolist()
    named = next((n for n in flat if is_named(n)), None)
    if named is None:
        return np.array(flat, dtype).reshape(objects.shape)
    return SizedArray(named.under, np.dtype(dtype), objects.shape, objects)


def vector(numbers: Sequence[Any], dtype: Any) -> Any:
    """`with_numbers` of a sequence."""
    if not any(map(is_named, numbers)):
        return np.array(numbers, dtype)
    objects = np.empty(len(numbers), object)
    for index, number in enumerate(numbers):
        objects[index] = number
    return with_numbers(None, objects, dtype)
