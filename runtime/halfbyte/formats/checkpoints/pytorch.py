"""Reader of PyTorch's ``.bin``, ``.pt`` and ``.th``: tensors in dicts, without running a pickle.

Since PyTorch 1.6 such a file is a zip archive: ``<root>/data.pkl`` is a pickle of the dicts, in
which a tensor is a call of ``torch._utils._rebuild_tensor_v2(storage, offset, shape, strides,
...)``, and ``<root>/data/<key>`` is a storage. Before, it was five pickles (a magic number, the
protocol, facts about the machine, the dicts, the keys of the storages), followed for each key by a
u64 number of elements and the elements. `PickleMachine` reads both without running anything.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.checkpoints import MAX_ELEMENTS, MAX_NAME, Checkpoint, archive
from halfbyte.formats.checkpoints.pickle_machine import Function, PickleMachine
from halfbyte.formats.derived import permuted
from halfbyte.formats.mapped import Pages
from halfbyte.weights import BF16, F16, F32, U8, WeightFormat

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001
_MAX_DIMENSIONS = 16
_WRAPPERS = ("state_dict", "model")  # keys under which trainers keep the tensors


class _Dtype(NamedTuple):
    name: str
    size: int  # bytes of an element


class _Storage(NamedTuple):
    dtype: _Dtype
    key: str
    elements: int


class _Stored(NamedTuple):
    """A tensor: part of a storage."""

    storage: _Storage
    offset: int  # elements
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # elements


_DTYPES = {
    "Float": _Dtype("F32", 4), "Half": _Dtype("F16", 2), "BFloat16": _Dtype("BF16", 2),
    "Double": _Dtype("F64", 8), "Long": _Dtype("I64", 8), "Int": _Dtype("I32", 4),
    "Short": _Dtype("I16", 2), "Char": _Dtype("I8", 1), "Byte": _Dtype("U8", 1),
    "Bool": _Dtype("BOOL", 1),
}  # fmt: skip
_FORMATS: dict[str, type[WeightFormat]] = {f.name: f for f in (F32, F16, BF16)}


def _rebuild(
    storage: object, offset: object, shape: object, strides: object, *others: object
) -> _Stored:
    lengths, steps = _sizes(shape), _sizes(strides)
    if not isinstance(storage, _Storage) or type(offset) is not int or len(others) > 3:
        raise TypeError
    if not 0 <= offset <= MAX_ELEMENTS or len(lengths) != len(steps):
        raise ValueError
    return _Stored(storage, offset, lengths, steps)


def _sizes(value: object) -> tuple[int, ...]:
    if type(value) is not tuple or len(value) > _MAX_DIMENSIONS:
        raise TypeError
    if not all(type(n) is int and 0 <= n <= MAX_ELEMENTS for n in value):
        raise ValueError
    return value


def _parameter(tensor: object, *others: object) -> object:
    if not isinstance(tensor, _Stored):
        raise TypeError
    return tensor


def _ordered_dict(*arguments: object) -> dict[str, object]:
    if arguments and arguments != ([],):
        raise TypeError
    return {}


_NAMES: dict[str, object] = {
    "collections OrderedDict": Function(_ordered_dict),
    "torch._utils _rebuild_tensor_v2": Function(_rebuild),
    "torch._utils _rebuild_tensor": Function(_rebuild),
    "torch._utils _rebuild_parameter": Function(_parameter),
    "torch Size": Function(_sizes),
    **{f"torch {name}Storage": dtype for name, dtype in _DTYPES.items()},
    **{
        f"torch {name}": name
        for name in ("float32", "float16", "bfloat16", "float64", "int64", "int32", "bool")
    },
}


def is_pytorch(start: bytes) -> bool:
    """Whether a file that begins with `start` is a zip archive or a binary pickle."""
    return start.startswith(archive.MAGIC) or (start[:1] == b"\x80" and start[1:2] in b"\2\3\4\5")


def read_pytorch(path: Path, pages: Pages) -> Checkpoint:
    """Parse a PyTorch file; tensors are views of its pages, or permuted on demand.

    Raises
    ------
    FormatError
        Truncated or inconsistent.
    UnsupportedError
        The pickle asks for more than tensors in dicts.
    """
    read = _read_zip if bytes(pages[:4]) == archive.MAGIC else _read_legacy
    value, storages = read(path, pages)
    checkpoint = Checkpoint("PyTorch", parts={path: pages})
    for name, stored in _tensors(path, value).items():
        if len(name) > MAX_NAME:
            raise FormatError(f"{path}: tensor {name[:80]!r}...: name of {len(name)} characters")
        _add(path, checkpoint, name, stored, storages)
    return checkpoint


def _read_zip(path: Path, pages: Pages) -> tuple[object, dict[str, U8]]:
    entries = archive.read_archive(path, pages)
    roots = [name.removesuffix("data.pkl") for name in entries if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise FormatError(f"{path}: a zip archive, but PyTorch's has one data.pkl in a folder")
    start, end = entries.get(f"{roots[0]}byteorder", (0, 0))
    if bytes(pages[start:end][:9]) not in (b"", b"little"):
        raise UnsupportedError(f"{path}: byte order {bytes(pages[start:end][:9])!r}")
    whole, prefix = np.frombuffer(pages, np.uint8), f"{roots[0]}data/"
    storages = {
        name.removeprefix(prefix): whole[first:last]
        for name, (first, last) in entries.items()
        if name.startswith(prefix)
    }
    start, end = entries[f"{roots[0]}data.pkl"]
    machine = PickleMachine(f"{path}: data.pkl", pages, start, end, _NAMES, partial(_storage, path))
    return machine.load(), storages


def _read_legacy(path: Path, pages: Pages) -> tuple[object, dict[str, U8]]:
    known: dict[str, _Storage] = {}

    def storage(identity: object) -> _Storage:
        new = _storage(path, identity)
        if known.setdefault(new.key, new) != new:
            raise FormatError(f"{path}: storage {new.key[:80]!r}: has two types or sizes")
        return new

    machine = PickleMachine(str(path), pages, 0, len(pages), _NAMES, storage)
    if machine.load() != LEGACY_MAGIC or machine.load() != _LEGACY_PROTOCOL:
        raise FormatError(f"{path}: a pickle, but not of PyTorch: it has no magic number")
    facts = machine.load()
    if not isinstance(facts, dict) or facts.get("little_endian") is not True:
        raise UnsupportedError(f"{path}: expected a file of a little-endian machine")
    value, keys = machine.load(), machine.load()
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise FormatError(f"{path}: expected a list of storages after the tensors")
    return value, _legacy_storages(path, pages, machine.at, keys, known)


def _legacy_storages(
    path: Path, pages: Pages, at: int, keys: list[str], known: dict[str, _Storage]
) -> dict[str, U8]:
    whole, storages = np.frombuffer(pages, np.uint8), {}
    for key in keys:
        if key not in known or key in storages:
            raise FormatError(f"{path}: storage {key[:80]!r}: no tensor needs it, or it is twice")
        size = known[key].elements * known[key].dtype.size
        if size + 8 > len(pages) - at:
            raise FormatError(
                f"{path}: truncated: storage {key[:80]!r} of {size} bytes expected at offset "
                f"{at}, {max(0, len(pages) - at - 8)} found"
            )
        (count,) = struct.unpack("<Q", pages[at : at + 8])
        if count != known[key].elements:
            raise FormatError(
                f"{path}: storage {key[:80]!r}: expected {known[key].elements} elements, found "
                f"{count}"
            )
        storages[key] = whole[at + 8 : at + 8 + size]
        at += 8 + size
    return storages


def _storage(path: Path, identity: object) -> _Storage:
    """("storage", type, key, device, number of elements, view or None)"""
    match identity:
        case ("storage", _Dtype() as dtype, str(key), str(), int(count), *view):
            if 0 <= count <= MAX_ELEMENTS and view in ([], [None]):
                return _Storage(dtype, key, count)
    raise FormatError(f"{path}: pickle: a reference that is not a storage of PyTorch")


def _tensors(path: Path, value: object) -> dict[str, _Stored]:
    """The dict of tensors in a pickled value; other values in it are left out."""
    candidates = [value]
    if isinstance(value, dict):
        candidates += [value[key] for key in _WRAPPERS if key in value]
    for candidate in candidates:
        if isinstance(candidate, dict):
            tensors = {str(k): v for k, v in candidate.items() if isinstance(v, _Stored)}
            if tensors:
                return tensors
    raise FormatError(
        f"{path}: expected a dict of tensors, or one under {' or '.join(map(repr, _WRAPPERS))}"
    )


def _add(
    path: Path, checkpoint: Checkpoint, name: str, tensor: _Stored, storages: dict[str, U8]
) -> None:
    where = f"{path}: tensor {name!r}"
    (dtype, key, count), offset, shape, strides = tensor
    if dtype.name not in _FORMATS:
        checkpoint.refuse_type(name, dtype.name)
        return
    if key not in storages:
        raise FormatError(f"{where}: storage {key[:80]!r} is missing")
    if storages[key].size != count * dtype.size:
        raise FormatError(
            f"{where}: storage {key[:80]!r}: {count * dtype.size} bytes expected, "
            f"{storages[key].size} found"
        )
    size = math.prod(shape)
    if offset + size > count:
        raise FormatError(
            f"{where}: {size} elements expected from element {offset}, its storage has {count}"
        )
    data = storages[key][offset * dtype.size : (offset + size) * dtype.size]
    if not size or strides == _dense(shape, strides):
        checkpoint.add(name, _FORMATS[dtype.name], shape, data)
        return
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])  # as the elements lie
    stored, steps = ([x[axis] for axis in order] for x in (shape, strides))
    if tuple(steps) != _dense(stored, steps):
        raise UnsupportedError(
            f"{where}: strides {list(strides)} of shape {list(shape)}: expected a tensor that is "
            "contiguous, or permuted"
        )
    checkpoint.add(name, _FORMATS[dtype.name], tuple(stored), data)
    if name in checkpoint.tensors:
        axes = tuple(map(order.index, range(len(shape))))
        checkpoint.tensors[name] = permuted(checkpoint.tensors[name], name, axes)


def _dense(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor; dimensions of length one keep the given stride."""
    dense: list[int] = []
    step = 1
    for length, stride in zip(shape[::-1], strides[::-1], strict=True):
        dense.append(stride if length == 1 else step)
        step *= length
    return tuple(dense[::-1])
