"""How far values may be from a reference: rules by model, operator, backend and type.

A rule is a table [[rule]] of a TOML file:

    [[rule]]
    model = "bert-*"           # a file's name; by default "*", any
    operator = "Softmax"       # ONNX's name; "output" stands for a model's outputs: see OUTPUT
    backend = "native*"
    type = "float*"            # of the elements, by NumPy's or ONNX's name
    rtol = 1e-4                # any of rtol, atol, min_cosine, steps

Names are matched as in a shell (`fnmatch`), and case matters. Each of the four numbers is decided
separately:

1. Layers: the command line precedes a suite's entry, which precedes the user's file, which precedes
   the built-in rules (`tolerances.toml`).
2. Within a layer, the more precise rule wins. Precision is compared by model, then operator, then
   backend, then type. A name without wildcards is more precise than a pattern, and a pattern with
   more letters than one with fewer.
3. Of equally precise rules, the later one wins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from halfbyte.errors import FormatError
from halfbyte.evaluation.toml_file import Section, read_toml

BUILT_IN = Path(__file__).with_name("tolerances.toml")
# The "operators" of a model's outputs, in which errors add up: of any model, of one with a float16
# KV cache, of one that quantizes activations.
OUTPUT, OUTPUT_F16, OUTPUT_INT8 = "output", "output-f16", "output-int8"
INNER_INT8 = "inner-int8"  # the "operator" of values between products that quantize activations

_KEYS = ("model", "operator", "backend", "type")
_WILD = frozenset("*?[")


@dataclass(frozen=True)
class Tolerance:
    """The allowed difference between a value x and its reference w.

    Floats: every |x - w| <= atol + rtol max(|w|, rms(w)), where rms is the root mean square of the
    whole tensor (rounding errors do not shrink where a sum cancels out), and the cosine between x
    and w is at least `min_cosine`. Integers may differ by `steps`. Other types, infinities and NaN
    must be equal.
    """

    rtol: float
    atol: float
    min_cosine: float
    steps: int

    def text(self, kind: str) -> str:
        """The limits that matter for a type, as text."""
        if kind.startswith(("float", "complex", "bfloat")):
            return f"rtol {self.rtol:.0e} atol {self.atol:.0e} cosine {self.min_cosine:g}"
        return f"{self.steps} steps" if self.steps and "int" in kind else "the same"


@dataclass(frozen=True)
class Rule:
    """Limits for values that match all patterns."""

    model: str = "*"
    operator: str = "*"
    backend: str = "*"
    type: str = "*"
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of model, operator, backend and type."""
        return self.model, self.operator, self.backend, self.type

    def matches(self, *names: str) -> bool:
        """Whether these names match, in the order of `patterns`."""
        return all(map(fnmatchcase, names, self.patterns))

    @property
    def precision(self) -> tuple[tuple[bool, int], ...]:
        """The sort key of rules; see the module's docstring."""
        return tuple(map(_precision, self.patterns))


def _precision(pattern: str) -> tuple[bool, int]:
    letters = sum(letter not in _WILD for letter in pattern)
    return letters == len(pattern), letters


class Tolerances:
    """Layers of rules, the strongest last."""

    def __init__(self, *layers: Sequence[Rule]) -> None:
        self._layers = layers

    def find(self, model: str, operator: str, backend: str, kind: str) -> Tolerance:
        """The tolerance for a model's file name, an operator, a backend and a type."""
        numbers: dict[str, float] = {}
        for layer in self._layers:
            fitting = [rule for rule in layer if rule.matches(model, operator, backend, kind)]
            for rule in sorted(fitting, key=lambda rule: rule.precision):  # stable: later wins
                numbers.update(rule.numbers)
        return Tolerance(
            numbers["rtol"], numbers["atol"], numbers["min_cosine"], int(numbers["steps"])
        )

    def with_layer(self, rules: Sequence[Rule]) -> Tolerances:
        """A copy with a stronger layer of rules."""
        return Tolerances(*self._layers, tuple(rules))


@cache
def built_in() -> Tolerances:
    """The built-in rules, the first of which sets all four numbers for everything."""
    return Tolerances(tuple(read_rules(BUILT_IN)))


def read_rules(path: Path) -> list[Rule]:
    """The rules of a file.

    Raises
    ------
    FormatError
        The file is not one of rules; the message names the key.
    """
    section = read_toml(path)
    rules = [_rule(part) for part in section.sections("rule")]
    section.finish()
    if not rules:
        raise FormatError(f"{path}: key 'rule': expected one or more tables [[rule]], found none")
    return rules


def _rule(section: Section) -> Rule:
    names = {key: section.take(key, str, "*") for key in _KEYS}
    numbers = take_numbers(section)
    section.finish()
    if not numbers:
        raise section.error("rtol", "a number here or in atol, min_cosine or steps", "none of them")
    return Rule(**names, numbers=numbers)


def take_numbers(section: Section) -> dict[str, float]:
    """Those of rtol, atol, min_cosine and steps that a table has."""
    taken = {
        key: section.take(key, kind)
        for key, kind in (("rtol", float), ("atol", float), ("min_cosine", float), ("steps", int))
    }
    numbers: dict[str, float] = {key: value for key, value in taken.items() if value is not None}
    for key, value in numbers.items():
        expected = expectation(key)
        if not fits(key, value):
            raise section.error(key, expected, value)
    return numbers


def fits(key: str, value: float) -> bool:
    """Whether a number is in the range of its key."""
    if key == "min_cosine":
        return -1 <= value <= 1
    return value >= 0 and (key != "steps" or not math.isinf(value))


def expectation(key: str) -> str:
    """The range of a key, as text."""
    return "-1 to 1" if key == "min_cosine" else "0 or more"
