"""Typed access to metadata, with errors that say file, key, expected and found."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError, printable
from halfbyte.formats.model_file import MetadataValue, ModelFile, PlannedTensors
from halfbyte.weights import Tensor

T = TypeVar("T")

_MISSING: Any = object()
ANY: Any = object()  # any value: what the key says is known from elsewhere
PASSED: Any = object()  # any value: the key changes no result


def integer(file: ModelFile, key: str, low: int, high: int, default: int = _MISSING) -> int:
    """An integer in [low, high]."""
    value = file.metadata.get(key, default)
    if value is _MISSING:
        raise FormatError(f"{file.path}: metadata '{key}': expected an integer, found nothing")
    if isinstance(value, np.ndarray) and value.size and np.all(value == value[0]):
        value = value[0]  # the same for every layer
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        kind = type(value).__name__
        raise FormatError(f"{file.path}: metadata '{key}': expected an integer, found {kind}")
    if not low <= int(value) <= high:
        raise FormatError(f"{file.path}: metadata '{key}': expected {low} to {high}, found {value}")
    return int(value)


def number(file: ModelFile, key: str, default: float = _MISSING) -> float:
    """A number that is positive and finite as a float32."""
    value = file.metadata.get(key, default)
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        wide = float(value)
        with np.errstate(over="ignore", under="ignore"):
            narrow = np.float32(wide)
        if np.isfinite(narrow) and narrow > 0:
            return wide
    shown = str(value) if isinstance(value, np.number) else repr(value)[:40]
    raise FormatError(
        f"{file.path}: metadata '{key}': expected a positive number in float32's range, found "
        f"{'nothing' if value is _MISSING else shown}"
    )


def text(file: ModelFile, key: str) -> str:
    """A string."""
    value = file.metadata.get(key)
    if not isinstance(value, str):
        kind = "nothing" if value is None else type(value).__name__
        raise FormatError(f"{file.path}: metadata '{key}': expected a string, found {kind}")
    return value


def refuse_others(file: ModelFile, prefix: str, read: set[str], others: dict[str, object]) -> None:
    """Refuse metadata that asks for another model than the one that is built.

    Parameters
    ----------
    prefix : str
        Only keys with this prefix are checked; the names below are without it.
    read : set of str
        Keys that are used.
    others : dict
        Keys that are allowed with this value; `ANY` and `PASSED` allow any value.

    Raises
    ------
    UnsupportedError
        A key is unknown or has another value.
    """
    for key, value in file.metadata.items():
        name = key.removeprefix(prefix)
        if name == key or name in read:
            continue
        if name not in others:
            raise UnsupportedError(
                f"{file.path}: metadata '{key}': halfbyte does not know this setting, and without "
                "it the model may compute something else"
            )
        wanted = others[name]
        if wanted not in (ANY, PASSED) and not _same(value, wanted):
            shown = repr(value)[:40] if isinstance(value, str | list) else printable(str(value), 40)
            raise UnsupportedError(
                f"{file.path}: metadata '{key}': expected {wanted!r}, found {shown}"
            )


def _same(value: MetadataValue, wanted: object) -> bool:
    """Whether a value, or each layer's value, is the wanted one."""
    if isinstance(wanted, float) and isinstance(value, np.floating):
        return math.isclose(float(value), wanted, rel_tol=1e-6)  # its writer may have rounded twice
    try:
        values = np.asarray(value)
        return values.size > 0 and bool(np.all(values == wanted))
    except ValueError:  # ragged lists
        return False


def tensor(file: ModelFile, name: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor of exactly this shape; tensors that are only planned have the shape asked for."""
    if isinstance(file.tensors, PlannedTensors):
        return file.tensors.shaped(name, shape)
    tensor = file.tensors.get(name)
    if tensor is None:
        raise FormatError(f"{file.path}: tensor '{name}': expected {list(shape)}, found nothing")
    if tensor.shape != shape:
        raise FormatError(
            f"{file.path}: tensor '{name}': expected {list(shape)}, found {list(tensor.shape)}"
        )
    return tensor
