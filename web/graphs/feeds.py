"""Inputs of a model in the page: what each can be filled with, and the resulting arrays."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError
from halfbyte.web.graphs.pictures import Layout, layout, picture_array
from halfbyte.web.graphs.sounds import sound_array, takes_sound

Array = npt.NDArray[Any]

MAX_BYTES = 1 << 29  # of one input
ROLES = {
    "input_ids": "ids", "attention_mask": "mask", "token_type_ids": "types",
    "position_ids": "positions",
}  # fmt: skip
_DTYPES = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "uint8": np.uint8,
    "int8": np.int8, "uint16": np.uint16, "int16": np.int16, "uint32": np.uint32,
    "int32": np.int32, "uint64": np.uint64, "int64": np.int64, "bool": np.bool_, "string": object,
}  # fmt: skip
_SAMPLES = ("float", "double", "float16")
_PIXELS = ("float", "double", "float16", "uint8", "int8", "int32")


class Arg(Protocol):
    """An input as `InferenceSession.get_inputs` returns it."""

    name: str
    shape: list[int | str | None]
    type: str


def element(arg: Arg) -> str:
    """ONNX's name of a tensor's elements: "float" of "tensor(float)"; "" for other types."""
    match = re.fullmatch(r"tensor\((\w+)\)", arg.type)
    return match[1] if match else ""


def describe(arg: Arg, imagenet: bool = False) -> dict[str, Any]:
    """The description of an input from which the page builds its form.

    `role` is "picture", "sound", "ids", "mask", "types", "positions", "strings", "numbers", or
    "none" if the page cannot fill it. `shape` has a proposal for every open size; `open` are their
    indices. `imagenet` says that the model knows ImageNet's classes, whose pictures have a `scale`
    by custom.
    """
    kind, shape = element(arg), [_proposal(dim) for dim in arg.shape]
    role = "numbers" if kind in _DTYPES else "none"
    if kind == "string":
        role = "strings"
    elif kind in ("int64", "int32") and arg.name in ROLES:
        role = ROLES[arg.name]
    elif kind in _PIXELS and (form := layout(arg.shape, arg.name)):
        role, shape = "picture", form.shape
    elif kind in _SAMPLES and takes_sound(arg.name, arg.shape):
        role = "sound"
    return {
        "name": arg.name,
        "type": arg.type,
        "declared": ["?" if dim is None else dim for dim in arg.shape],
        "shape": shape,
        "open": [i for i, dim in enumerate(arg.shape) if not isinstance(dim, int)],
        "role": role,
        **(_of_picture(form, imagenet) if role == "picture" and form else {}),
    }


def _of_picture(form: Layout, imagenet: bool) -> dict[str, Any]:
    """Its sides, and the scale by custom: TensorFlow's, whose channels are last, or PyTorch's."""
    scale = ("signed" if form.last else "imagenet") if imagenet else "unit"
    return {"height": form.height, "width": form.width, "scale": scale}


def feeds(
    args: Sequence[Arg],
    asked: Mapping[str, Mapping[str, Any]],
    pixels: Mapping[str, Any],
    encode: Callable[[str], list[int]] | None,
) -> dict[str, Array]:
    """Arrays for all inputs.

    Parameters
    ----------
    asked : mapping
        For each input its `role`, and the arguments of that role's function; a `text` for ids is
        for all inputs that are made from tokens.
    pixels : mapping
        Pixels of inputs with the role "picture", and samples of those with the role "sound".
    encode : callable or None
        The model's tokenizer.

    Raises
    ------
    HalfbyteError
        The arguments of an input are invalid; the message names the input.
    """
    arrays: dict[str, Array] = {}
    of_tokens = [a for a in args if asked.get(a.name, {}).get("role") in ROLES.values()]
    if of_tokens:
        text = next((str(asked[a.name]["text"]) for a in of_tokens if "text" in asked[a.name]), "")
        arrays |= token_arrays(of_tokens, text, encode)
    for arg in args:
        if arg.name not in arrays:
            wish = asked.get(arg.name, {"role": "none"})
            try:
                arrays[arg.name] = _one(arg, wish, pixels.get(arg.name))
            except HalfbyteError as error:
                raise HalfbyteError(f"input {arg.name!r}: {error}") from None
    return arrays


def _one(arg: Arg, wish: Mapping[str, Any], pixels: Any) -> Array:
    """The array of an input that is not made from tokens."""
    if wish["role"] == "picture":
        form = layout(arg.shape, arg.name)
        if pixels is None or form is None:
            raise HalfbyteError("choose a picture, or drop one")
        return picture_array(pixels, form, _DTYPES[element(arg)], wish)
    if wish["role"] == "sound":
        if pixels is None or not takes_sound(arg.name, arg.shape):
            raise HalfbyteError("choose a sound, or drop one")
        return sound_array(pixels, arg.shape, _DTYPES[element(arg)])
    if wish["role"] == "strings":
        return string_array(arg, str(wish["text"]))
    if wish["role"] == "numbers":
        return number_array(arg, wish)
    raise HalfbyteError(f"this page cannot fill inputs of type {arg.type}")


def _proposal(dim: int | str | None) -> int:
    return dim if isinstance(dim, int) and dim >= 0 else 1


def number_array(arg: Arg, asked: Mapping[str, Any]) -> Array:
    """An array of numbers for an input.

    Parameters
    ----------
    asked : mapping
        `shape`; `fill`: "zeros", "ones", "random" (0..1, or 0 and 1 for integers; always the
        same), "count" (0, 1, 2, ...), or "values": those in `text`, as many as the shape has.

    Raises
    ------
    HalfbyteError
        The text is not numbers, or not as many as the shape has.
    """
    dtype = _DTYPES[element(arg)]
    shape = _checked_shape(arg, asked["shape"], np.dtype(dtype).itemsize)
    count, fill = math.prod(shape), asked["fill"]
    if fill == "values":
        return _values(str(asked["text"]), dtype, count).reshape(shape)
    if fill == "random":
        generator = np.random.default_rng(0)
        whole = not np.issubdtype(dtype, np.floating)
        values = generator.integers(0, 2, count) if whole else generator.random(count)
        return values.astype(dtype).reshape(shape)
    if fill == "count":
        return np.arange(count).astype(dtype).reshape(shape)
    return np.full(shape, fill == "ones", dtype)


def _checked_shape(arg: Arg, shape: Sequence[Any], itemsize: int) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in shape)
    if len(sizes) != len(arg.shape) or min(sizes, default=0) < 0:
        raise HalfbyteError(f"shape {list(sizes)}: expected {arg.shape}")
    if math.prod(sizes) * itemsize > MAX_BYTES:
        raise HalfbyteError(
            f"{list(sizes)} takes {math.prod(sizes) * itemsize / 1e6:.0f} MB: expected at "
            f"most {MAX_BYTES / 1e6:.0f} MB"
        )
    return sizes


def _values(text: str, dtype: Any, count: int) -> Array:
    values = re.split(r"[\s,;\[\]()]+", text.strip(" \t\r\n,;[]()"))
    values = [value for value in values if value]
    if len(values) != count:
        raise HalfbyteError(f"{len(values)} values: expected {count}")
    whole = not np.issubdtype(dtype, np.floating)
    try:
        return np.array([int(v) if whole else float(v) for v in values]).astype(dtype)
    except (ValueError, OverflowError):
        raise HalfbyteError(f"expected {count} numbers of type {np.dtype(dtype)}") from None


def token_arrays(
    args: Sequence[Arg], text: str, encode: Callable[[str], list[int]] | None
) -> dict[str, Array]:
    """Arrays [1, tokens] for the inputs that are made from a text: ids, mask, types, positions.

    Parameters
    ----------
    encode : callable or None
        The model's tokenizer; without one, the text is ids separated by spaces.

    Raises
    ------
    HalfbyteError
        The text is not numbers and there is no tokenizer; or the text has no tokens.
    """
    if encode is None:
        numbers = text.replace(",", " ").split()
        if not numbers or not all(re.fullmatch(r"\d{1,9}", number) for number in numbers):
            raise HalfbyteError(
                "A text needs the model's tokenizer: drop its tokenizer.json too. Without one, "
                "write token ids, separated by spaces."
            )
        ids = [int(number) for number in numbers]
    else:
        ids = encode(text)
    fixed = [arg.shape[1] for arg in args if len(arg.shape) == 2 and isinstance(arg.shape[1], int)]
    length = int(fixed[0] or 0) if fixed else len(ids)
    if not length:
        raise HalfbyteError("The text has no tokens: write something.")
    kept = min(len(ids), length)
    arrays = {}
    for arg in args:
        row: Array = np.zeros((1, length), _DTYPES[element(arg)])
        role = ROLES[arg.name]
        if role == "ids":
            row[0, :kept] = ids[:kept]
        elif role == "mask":
            row[0, :kept] = 1
        elif role == "positions":
            row[0] = np.arange(length)
        arrays[arg.name] = row
    return arrays


def string_array(arg: Arg, text: str) -> Array:
    """An array of strings for an input, with `text` as every element; open sizes are 1."""
    array = np.empty(_checked_shape(arg, [_proposal(dim) for dim in arg.shape], 8), object)
    array[...] = text
    return array
