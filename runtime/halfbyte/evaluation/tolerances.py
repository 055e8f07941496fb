"""How far values may be from a reference: rules by model, operator, backend and type.

A rule is a table [[rule]] of a TOML file:

    [[rule]]
    model = "bert-*"           # a file's name; left out, it is "*": any
    operator = "Softmax"       # ONNX's name; "output" is what a model gives as a whole: see OUTPUT
    backend = "native*"
    type = "float*"            # of the elements, as NumPy or ONNX calls it
    rtol = 1e-4                # any of rtol, atol, min_cosine, steps

Names are matched as by a shell (`fnmatch`), and case matters. Each of the four numbers is decided
by itself:

1. Layers: what the command line says is before a suite's entry, that before the user's file, and
   that before the rules that come with halfbyte (`tolerances.toml`).
2. In a layer the more precise rule wins. Precision is compared by model first, then operator, then
   backend, then type; a whole name is more precise than a pattern, and of patterns the one with
   more letters.
3. Of rules that are equally precise the later one wins.
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
# What stands for the operator where a model's outputs are compared, to which its errors add up: of
# any model, of one whose KV cache is float16, of one that rounds activations to integers.
OUTPUT, OUTPUT_F16, OUTPUT_INT8 = "output", "output-f16", "output-int8"
INNER_INT8 = "inner-int8"  # a value between products that round what they take

_KEYS = ("model", "operator", "backend", "type")
_WILD = frozenset("*?[")


@dataclass(frozen=True)
class Tolerance:
    """What is allowed between a value x and its reference w.

    Floats: every |x - w| <= atol + rtol max(|w|, rms(w)), where rms is the root of the mean square
    of the whole tensor (rounding errors of a sum do not shrink with what is left of it), and the
    cosine between x and w is at least `min_cosine`. Integers may differ by `steps`. All others,
    and infinities and NaN, must be the same.
    """

    rtol: float
    atol: float
    min_cosine: float
    steps: int

    def text(self, kind: str) -> str:
        """What of it matters for values of a type."""
        if kind.startswith(("float", "complex", "bfloat")):
            return f"rtol {self.rtol:.0e} atol {self.atol:.0e} cosine {self.min_cosine:g}"
        return f"{self.steps} steps" if self.steps and "int" in kind else "the same"


@dataclass(frozen=True)
class Rule:
    """Numbers for whatever matches all patterns."""

    model: str = "*"
    operator: str = "*"
    backend: str = "*"
    type: str = "*"
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def patterns(self) -> tuple[str, ...]:
        """By model, operator, backend and type."""
        return self.model, self.operator, self.backend, self.type

    def matches(self, *names: str) -> bool:
        """Whether it says something of these, in the order of `patterns`."""
        return all(map(fnmatchcase, names, self.patterns))

    @property
    def precision(self) -> tuple[tuple[bool, int], ...]:
        """By which rules are ordered; see the module's text."""
        return tuple(map(_precision, self.patterns))


def _precision(pattern: str) -> tuple[bool, int]:
    letters = sum(letter not in _WILD for letter in pattern)
    return letters == len(pattern), letters


class Tolerances:
    """Layers of rules, the strongest last."""

    def __init__(self, *layers: Sequence[Rule]) -> None:
        self._layers = layers

    def find(self, model: str, operator: str, backend: str, kind: str) -> Tolerance:
        """What holds for a model's file name, an operator, a backend and a type."""
        numbers: dict[str, float] = {}
        for layer in self._layers:
            fitting = [rule for rule in layer if rule.matches(model, operator, backend, kind)]
            for rule in sorted(fitting, key=lambda rule: rule.precision):  # stable: later wins
                numbers.update(rule.numbers)
        return Tolerance(
            numbers["rtol"], numbers["atol"], numbers["min_cosine"], int(numbers["steps"])
        )

    def with_layer(self, rules: Sequence[Rule]) -> Tolerances:
        """These, and rules before which all of them give way."""
        return Tolerances(*self._layers, tuple(rules))


@cache
def built_in() -> Tolerances:
    """The rules that come with halfbyte; the first one says all four numbers of everything."""
    return Tolerances(tuple(read_rules(BUILT_IN)))


def read_rules(path: Path) -> list[Rule]:
    """The rules of a file.

    Raises
    ------
    FormatError
        With the file, the key, what was expected and what was found.
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
    """rtol, atol, min_cosine and steps, as far as a table has them."""
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
    """Whether a number can be what it is meant for."""
    if key == "min_cosine":
        return -1 <= value <= 1
    return value >= 0 and (key != "steps" or not math.isinf(value))


def expectation(key: str) -> str:
    """What a number should have been."""
    return "-1 to 1" if key == "min_cosine" else "0 or more"
