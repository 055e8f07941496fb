"""The base of the parts of a tokenizer, which tokenizer.json describes as objects with a type."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.json_file import field, kind_of, optional, parse_json

WHERE = Path("tokenizers")  # in messages: a part does not know its file
REQUIRED: Any = object()


class Regex:
    """A regular expression; others than strings are refused where they are used."""

    def __init__(self, s: str) -> None:
        self.pattern = s

    def __repr__(self) -> str:
        return f"Regex({self.pattern!r})"


class Component:
    """A part of a tokenizer: its fields are those of tokenizer.json, and may be set.

    Attributes
    ----------
    TYPE : str
        The field "type" in tokenizer.json.
    FIELDS : dict
        Parameters and their defaults, in order, by their names in Python.
    NAMES : dict
        The names in tokenizer.json, where they differ.
    """

    TYPE: ClassVar[str] = ""
    FIELDS: ClassVar[dict[str, Any]] = {}
    NAMES: ClassVar[dict[str, str]] = {}
    KIND: ClassVar[str] = ""  # "normalizer", ..., as in tokenizer.json
    TYPES: ClassVar[dict[str, type[Component]]] = {}  # of one kind, by type

    def __init_subclass__(cls) -> None:
        for name in cls.FIELDS:
            if not hasattr(cls, name):
                setattr(cls, name, _property(name))
        if "TYPE" in cls.__dict__:
            cls.TYPES[cls.TYPE] = cls

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        names = list(self.FIELDS)
        given = dict(zip(names, arguments, strict=False)) | keywords
        unknown = [name for name in given if name not in self.FIELDS]
        if unknown or len(arguments) > len(names):
            expected = ", ".join(names) or "nothing"
            found = ", ".join(unknown) or f"{len(arguments)} arguments"
            raise TypeError(f"{type(self).__name__}: expected {expected}, found {found}")
        values = self.FIELDS | given
        missing = [name for name, value in values.items() if value is REQUIRED]
        if missing:
            raise TypeError(f"{type(self).__name__}: {', '.join(missing)} must be given")
        self.fields = {name: self.read(name, value) for name, value in values.items()}
        self.instance: Any = None  # what `use` made of the fields

    def read(self, name: str, value: Any) -> Any:
        """A field as it is kept, as in tokenizer.json, from what a program gives."""
        return value

    def shown(self, name: str, value: Any) -> Any:
        """A field as a program sees it."""
        return value

    def make(self) -> Any:
        """What runs the component, from its fields; made again after a field is set."""
        raise UnsupportedError(f"{WHERE}: {self.KIND} {self.TYPE} is not in halfbyte")

    def use(self) -> Any:
        """What `make` made."""
        if self.instance is None:
            self.instance = self.make()
        return self.instance

    def state(self) -> dict[str, Any]:
        """The component in tokenizer.json."""
        names = self.NAMES
        return {"type": self.TYPE} | {names.get(n, n): v for n, v in self.fields.items()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The component that tokenizer.json describes.

        Raises
        ------
        FormatError, UnsupportedError
            The description is malformed; its type is not known.
        """
        if not isinstance(state, dict):
            raise FormatError(f"{WHERE}: {cls.KIND}: expected an object, found {kind_of(state)}")
        kind = field(WHERE, state, "type", str, f"{cls.KIND}.")
        chosen = cls.TYPES.get(kind)
        if chosen is None:
            known = ", ".join(cls.TYPES)
            raise UnsupportedError(
                f"{WHERE}: {cls.KIND}: expected one of {known}, found {kind[:40]!r}"
            )
        try:
            return chosen.parse(state)  # type: ignore[return-value]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{WHERE}: {cls.KIND} {kind}: is malformed: {error}") from None

    @classmethod
    def parse(cls, state: dict[str, Any]) -> Self:
        """As `from_state`, for this type."""
        component = cls.__new__(cls)
        component.fields = {
            name: _field(state, cls.NAMES.get(name, name), default, f"{cls.KIND}.")
            for name, default in cls.FIELDS.items()
        }
        component.instance = None
        component.check()
        return component

    def check(self) -> None:
        """Check fields that come from a file, by making the component."""
        self.use()

    def __getstate__(self) -> bytes:
        return written(self.state()).encode()

    def __setstate__(self, state: bytes) -> None:
        data = parse_json(WHERE, bytes(state))
        self.__dict__.update(type(self).parse(data).__dict__)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[type, bytes]]:
        return _restored, (type(self), self.__getstate__())

    def __repr__(self) -> str:
        values = (f"{n}={self.shown(n, v)!r}" for n, v in self.fields.items())
        return f"{type(self).__name__}({', '.join(values)})"

    __str__ = __repr__


class Steps(Component):
    """Components of one kind, in order; its only field has them."""

    FLAT: ClassVar[bool] = True  # the steps of steps become its own

    def read(self, name: str, value: Any) -> Any:
        parts = ([*step] if self.FLAT and isinstance(step, Steps) else [step] for step in value)
        return [self._checked(step) for part in parts for step in part]

    def _checked(self, step: Any) -> Component:
        if not isinstance(step, Component) or step.KIND != self.KIND:
            raise TypeError(f"Sequence: expected a {self.KIND}, found {type(step).__name__}")
        return step

    def make(self) -> Any:
        """Nothing: the steps make themselves."""

    @property
    def steps_in_order(self) -> list[Any]:
        """The steps."""
        (steps,) = self.fields.values()
        return steps  # type: ignore[no-any-return]

    def state(self) -> dict[str, Any]:
        (name,) = self.FIELDS
        return {"type": self.TYPE, name: [step.state() for step in self.steps_in_order]}

    @classmethod
    def parse(cls, state: dict[str, Any]) -> Self:
        (name,) = cls.FIELDS
        states = field(WHERE, state, name, list, f"{cls.KIND}.")
        component = cls([])
        component.steps_in_order.extend(cls.from_state(step) for step in states)
        return component

    def __len__(self) -> int:
        return len(self.steps_in_order)

    def __getitem__(self, index: int) -> Any:
        return self.steps_in_order[index]

    def __setitem__(self, index: int, value: Any) -> None:
        self.steps_in_order[index] = self._checked(value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.steps_in_order)


def _field(state: dict[str, Any], name: str, default: Any, where: str) -> Any:
    """A field of a file, of its default's type if that says one."""
    if default is REQUIRED or default is None or isinstance(default, tuple):
        return state.get(name)
    return optional(WHERE, state, name, default, type(default), where)


def _restored(kind: type[Component], state: bytes) -> Component:
    return kind.from_state(parse_json(WHERE, state))


def _property(name: str) -> property:
    def get(component: Component) -> Any:
        return component.shown(name, component.fields[name])

    def put(component: Component, value: Any) -> None:
        component.fields[name] = component.read(name, value)
        component.instance = None

    return property(get, put, doc=f"The field {name!r}.")


def custom_class(base: type[Component], method: str) -> Callable[[Any], Component]:
    """A function that makes a component of an object with this method, for `custom`."""

    class Custom(base):  # type: ignore[misc, valid-type]
        """A component that a program defines."""

        def __init__(self, obj: Any) -> None:
            if not callable(getattr(obj, method, None)):
                raise TypeError(f"{base.KIND}: expected an object with {method}()")
            super().__init__()
            self.instance = obj

        def state(self) -> dict[str, Any]:
            """Refused: there is no description of it."""
            raise UnsupportedError(f"{WHERE}: a custom {base.KIND} cannot be written to a file")

        def __repr__(self) -> str:
            return f"Custom({self.instance!r})"

    return Custom


def pattern_of(value: str | Regex | dict[str, str]) -> dict[str, str]:
    """A pattern as in tokenizer.json."""
    if isinstance(value, str):
        return {"String": value}
    return {"Regex": value.pattern} if isinstance(value, Regex) else value


def written(value: Any, pretty: bool = False) -> str:
    """JSON as `tokenizers` writes it."""
    if pretty:
        return json.dumps(value, ensure_ascii=False, indent=2)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
