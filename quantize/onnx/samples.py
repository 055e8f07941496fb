"""Inputs of a model: from files, or random from a seed."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import ValueInfoProto, helper

from halfbyte.errors import FormatError, HalfbyteError, MemoryBudgetError
from halfbyte.formats.npz import read_npy, read_npz
from halfbyte.quantize.onnx.editor import Editor
from halfbyte.quantize.onnx.made_up import MIN_SOUND, picture, sound
from halfbyte.quantize.onnx.nodes import is_op
from halfbyte.quantize.onnx.picture_samples import SUFFIXES, Normalization, read_picture
from halfbyte.quantize.onnx.text_samples import read_texts
from halfbyte.room import available_bytes

Array = npt.NDArray[Any]
Feeds: TypeAlias = "Mapping[str, Array]"

SEED = 0
_BATCH, _LENGTH, _SIDE = 2, 16, 64  # of open dimensions: samples, tokens, pixels
_SOUND = 1024  # of the last one of two, where all inputs are floats


class Inputs:
    """The inputs of a model, and arrays for them."""

    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self.path = editor.source.path
        constants = {t.name for t in editor.model.graph.initializer}
        self.values = [v for v in editor.model.graph.input if v.name not in constants]

    def shape(self, value: ValueInfoProto) -> list[int | str]:
        """Sizes; an open size is its name, or '' (a size of -1 is open)."""
        dims = value.type.tensor_type.shape.dim
        known = (d.HasField("dim_value") and d.dim_value >= 0 for d in dims)
        return [d.dim_value if k else d.dim_param for d, k in zip(dims, known, strict=True)]

    def dtype(self, value: ValueInfoProto) -> np.dtype[Any]:
        """NumPy's type of an input."""
        number = value.type.tensor_type.elem_type
        try:
            return helper.tensor_dtype_to_np_dtype(number)
        except KeyError:
            raise FormatError(
                f"{self.path}: input {value.name!r}: element type {number}, expected one of ONNX's"
            ) from None

    # ---- random ----------------------------------------------------------------------------

    def random(self, seed: int = SEED) -> Feeds:
        """Made-up pictures and sounds (`made_up`), and normal numbers for other floats.

        Integers are indices within the table that they index, or ones.
        """
        rng = np.random.default_rng(seed)
        sizes: dict[str, int] = {}
        first = sorted(self.values, key=lambda value: "+" in "".join(map(str, self.shape(value))))
        return {value.name: self._random(value, rng, sizes) for value in first}

    def _random(
        self, value: ValueInfoProto, rng: np.random.Generator, sizes: dict[str, int]
    ) -> Array:
        shape = self.shape(value)
        picture, dtype = len(shape) == 4 and shape[1] in (1, 3), self.dtype(value)
        length = _SOUND if len(shape) == 2 and self._are_floats() else _LENGTH
        sides = []
        for axis, size in enumerate(shape):
            default = _BATCH if axis == 0 else _SIDE if picture else length
            sides.append(size if isinstance(size, int) else _size(size, default, sizes))
        if math.prod(sides) * 8 > available_bytes():  # random numbers are drawn in float64
            raise MemoryBudgetError(
                f"{self.path}: input {value.name!r}: {dtype} {sides}: more than this machine holds"
            )
        if dtype.kind in "iu":
            limit = self._table_rows(value.name)
            return rng.integers(0, limit, sides).astype(dtype) if limit else np.ones(sides, dtype)
        if dtype.kind == "b":
            return np.ones(sides, dtype)
        return _floats(sides, rng).astype(dtype)

    def _are_floats(self) -> bool:
        """Whether all inputs are; beside integers, floats of two dimensions mask tokens."""
        return all(self.dtype(value).kind == "f" for value in self.values)

    def _table_rows(self, name: str) -> int:
        """Rows of the smallest table that a value indexes; 0 where it indexes none."""
        names, rows = {name}, []
        for node in self.editor.model.graph.node:
            if is_op(node, "Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten"):
                names |= set(node.output) if node.input[0] in names else set()
            if is_op(node, "Gather") and node.input[1] in names:
                table = self.editor.main.constant(node.input[0])
                rows += [table.dims[0]] if table is not None and table.dims else []
        return min(rows, default=0)

    # ---- from files -------------------------------------------------------------------------

    def read(
        self,
        path: Path,
        normalization: Normalization,
        tokenizer: str | os.PathLike[str] | None = None,
    ) -> list[Feeds]:
        """Samples of a .npz file, of a folder of .npz, .npy and pictures, or of a text.

        In a .npz file, arrays have the names of inputs (or are in their order, `arr_0`, ...). Their
        first axis counts samples: where an array has as many dimensions as its input, each sample
        is a slice of length 1. Samples of different shapes are separate arrays: `name.0`, `name.1`,
        ... In a folder, each file is one sample. Any other file is a text (`text_samples`).
        """
        if path.is_dir():
            files = sorted(
                p for p in path.iterdir() if p.suffix.lower() in (*SUFFIXES, ".npz", ".npy")
            )
            samples = [self._one(file, normalization) for file in files]
        elif path.suffix.lower() == ".npz":
            samples = self._many(path)
        else:
            samples = self._texts(path, tokenizer)
        if not samples:
            raise HalfbyteError(f"{path}: found no samples: expected .npz, .npy or pictures")
        return samples

    def _texts(self, path: Path, tokenizer: str | os.PathLike[str] | None) -> list[Feeds]:
        if not path.is_file():
            raise HalfbyteError(
                f"{path}: expected calibration data: a text, a .npz file or a folder"
            )
        shapes = {value.name: self.shape(value) for value in self.values}
        samples = read_texts(path, tokenizer, self.path, shapes)
        top = max(int(feeds["input_ids"].max()) for feeds in samples)
        if top >= (self._table_rows("input_ids") or math.inf):
            raise HalfbyteError(
                f"{path}: expected the model's tokenizer, found one with a token {top}, beyond its "
                f"{self._table_rows('input_ids')}"
            )
        dtypes = {value.name: self.dtype(value) for value in self.values}
        return [{n: x.astype(dtypes[n]) for n, x in feeds.items()} for feeds in samples]

    def _many(self, path: Path) -> list[Feeds]:
        arrays = read_npz(path)
        lists = {value.name: self._samples(path, value, arrays, i)
                 for i, value in enumerate(self.values)}  # fmt: skip
        counts = {len(samples) for samples in lists.values()}
        if len(counts) > 1:
            raise FormatError(
                f"{path}: expected as many samples of each input, found "
                f"{ {name: len(samples) for name, samples in lists.items()} }"
            )
        count = max(counts, default=0)
        return [{name: samples[i] for name, samples in lists.items()} for i in range(count)]

    def _samples(
        self, path: Path, value: ValueInfoProto, arrays: Mapping[str, Array], index: int
    ) -> list[Array]:
        numbered = sorted(
            (int(match[1]), name)
            for name in arrays
            if (match := re.fullmatch(re.escape(value.name) + r"\.(\d{1,9})", name))
        )
        if numbered:
            return [self._fitted(path, value, arrays[name]) for _, name in numbered]
        array = arrays.get(value.name, arrays.get(f"arr_{index}"))
        if array is None:
            raise FormatError(
                f"{path}: input {value.name!r}: expected an array of this name, found "
                f"{sorted(arrays)}"
            )
        rank = len(self.shape(value))
        if array.ndim == rank + 1:
            return [self._fitted(path, value, one) for one in array]
        if array.ndim != rank or not rank:
            self._fitted(path, value, array)
        return [self._fitted(path, value, array[i : i + 1]) for i in range(len(array))]

    def _one(self, path: Path, normalization: Normalization) -> Feeds:
        """The sample in a file of a folder."""
        if path.suffix.lower() == ".npz":
            arrays = read_npz(path)
            sample = {}
            for index, value in enumerate(self.values):
                array = arrays.get(value.name, arrays.get(f"arr_{index}"))
                if array is None:
                    raise FormatError(f"{path}: input {value.name!r}: found {sorted(arrays)}")
                sample[value.name] = self._fitted(path, value, array)
            return sample
        if len(self.values) != 1:
            raise HalfbyteError(
                f"{path}: one array for inputs {[v.name for v in self.values]}: expected .npz files"
            )
        value = self.values[0]
        if path.suffix.lower() == ".npy":
            return {value.name: self._fitted(path, value, read_npy(path))}
        shape = [size if isinstance(size, int) else 0 for size in self.shape(value)]
        return {value.name: read_picture(path, shape, self.dtype(value), normalization)}

    def _fitted(self, path: Path, value: ValueInfoProto, array: Array) -> Array:
        """An array in the type of its input, with an axis for samples if it lacks one."""
        shape, dtype = self.shape(value), self.dtype(value)
        if array.ndim == len(shape) - 1:
            array = array[None]
        fits = array.ndim == len(shape) and all(
            isinstance(want, str) or want == have
            for want, have in zip(shape, array.shape, strict=True)
        )
        if (
            not fits
            or array.dtype.kind not in "fiub"
            or (dtype.kind in "iu") > (array.dtype.kind in "iub")
        ):
            raise FormatError(
                f"{path}: input {value.name!r}: expected {dtype} {shape}, found {array.dtype} "
                f"{list(array.shape)}"
            )
        return np.ascontiguousarray(array.astype(dtype, copy=False))


def _floats(shape: list[int], rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """A picture or a sound for each row where the shape is of such, else normal numbers."""
    if 0 in shape:
        return np.zeros(shape, np.float32)
    if len(shape) == 4 and shape[1] in (1, 3):
        return np.stack([picture(rng, *shape[1:]) for _ in range(shape[0])])
    if len(shape) in (2, 3) and shape[-1] >= MIN_SOUND and math.prod(shape[:-1]) in (1, shape[0]):
        rows = [sound(rng, shape[-1]) for _ in range(shape[0])]
        return np.stack(rows).reshape(shape)
    return rng.standard_normal(shape, np.float32)


def _size(text: str, chosen: int, sizes: dict[str, int]) -> int:
    """A size by its name, which may be a sum of names: the same name means the same size."""
    parts = [part.strip() for part in text.split("+")]
    return sum(int(part) if part.isdecimal() else sizes.setdefault(part, chosen) for part in parts)
