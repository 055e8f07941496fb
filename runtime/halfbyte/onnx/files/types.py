"""Reading of ValueInfoProto and TypeProto."""

from __future__ import annotations

from halfbyte.errors import UnsupportedError
from halfbyte.formats.protobuf import Message, Value
from halfbyte.onnx.files.model import Dim, TypeInfo, ValueInfo
from halfbyte.onnx.files.tensors import MAX_NAME, MAX_RANK, element_type

_MAX_NESTING = 16  # of sequences in sequences
_TENSOR, _SEQUENCE, _MAP, _OPAQUE, _SPARSE, _OPTIONAL = 1, 4, 5, 7, 8, 9
_KINDS = {
    _TENSOR: "tensor", _SEQUENCE: "sequence", _MAP: "map", _SPARSE: "sparse_tensor",
    _OPTIONAL: "optional",
}  # fmt: skip


def read_value_info(message: Message) -> ValueInfo:
    """A ValueInfoProto, whose type may be missing or empty."""
    name, kind = "", None
    for number, value in message.fields():
        if number == 1:
            name = message.text(value)
        elif number == 2:
            kind = read_type(message.message(value, f"type of value {name!r}"))
    if not 0 < len(name) <= MAX_NAME:
        raise message.error(f"a value's name of {len(name)} characters")
    return ValueInfo(name, kind)


def read_type(message: Message, depth: int = 0) -> TypeInfo | None:
    """A TypeProto; None if it is empty.

    Raises
    ------
    FormatError
        The message has two types, or types are nested too deeply.
    UnsupportedError
        The type is opaque.
    """
    if depth > _MAX_NESTING:
        raise message.error(f"types nested more than {_MAX_NESTING} deep")
    info: TypeInfo | None = None
    for number, value in message.fields():
        if number == _OPAQUE:
            raise UnsupportedError(f"{message.path}: {message.name}: an opaque type")
        if number not in _KINDS:
            continue
        if info is not None:
            raise message.error("two types at once")
        inner = message.message(value, message.name)
        if number in (_TENSOR, _SPARSE):
            info = _read_tensor(inner, _KINDS[number])
        else:
            info = _read_container(inner, number, depth)
    return info


def _read_tensor(message: Message, kind: str) -> TypeInfo:
    dtype, shape = 0, None
    denotations: tuple[str, ...] = ()
    for number, value in message.fields():
        if number == 1:
            dtype = message.integer(value)
        elif number == 2:
            shape, denotations = _read_shape(message.message(value, message.name))
    number = element_type(dtype, message) if dtype else 0
    return TypeInfo(kind, number, shape, denotations=denotations)


def _read_container(message: Message, container: int, depth: int) -> TypeInfo:
    """A sequence or optional of the type in field 1, or a map from field 1 to field 2."""
    key, element = 0, None
    is_map = container == _MAP
    for number, value in message.fields():
        if number == 1 and is_map:
            key = element_type(message.integer(value), message)
        elif number == (2 if is_map else 1):
            element = read_type(message.message(value, message.name), depth + 1)
    return TypeInfo(_KINDS[container], key, None, element)


def _read_shape(message: Message) -> tuple[tuple[Dim, ...], tuple[str, ...]]:
    """Sizes, and their denotations, which are empty if no size has one."""
    dims: list[Dim] = []
    denotations: list[str] = []
    for number, value in message.fields():
        if number == 1:
            dim, denotation = _read_dim(message, value)
            dims.append(dim)
            denotations.append(denotation)
    if len(dims) > MAX_RANK:
        raise message.error(f"{len(dims)} dimensions, expected at most {MAX_RANK}")
    return tuple(dims), tuple(denotations) if any(denotations) else ()


def _read_dim(message: Message, field: Value) -> tuple[Dim, str]:
    """A size, a name, or neither, and its denotation; some writers use -1 for an unknown size."""
    dim: Dim = None
    denotation = ""
    for number, value in message.message(field, message.name).fields():
        if number == 1:
            size = message.integer(value)
            dim = size if size >= 0 else None
        elif number == 2:
            dim = message.text(value) or None
        elif number == 3:
            denotation = message.text(value)
    return dim, denotation
