"""Formulas of sizes that differ between calls, and conditions under which a program is right.

Bounds of all sizes decide most comparisons without a condition.
"""

from __future__ import annotations

import collections
import math
import operator
from collections.abc import Callable, Mapping

from halfbyte.onnx.formulas import Terms, substituted, written

Bounds = tuple[int, int]

SMALLEST = 2  # a size of 1 broadcasts, so programs for it differ


class SizeConditions:
    """What is known of formulas of some variables.

    Parameters
    ----------
    values : mapping of str to int
        The variables, which are Python identifiers, with their values in the present call.
    largest : mapping of str to int
        The most that each may be.

    Attributes
    ----------
    values : dict of str to int
    """

    def __init__(self, values: Mapping[str, int], largest: Mapping[str, int]) -> None:
        self.values = dict(values)
        self._bounds: dict[str, Bounds] = {v: (SMALLEST, largest[v]) for v in values}
        self._needs: dict[str, set[str]] = {v: {v} for v in values}  # variables in each factor
        self._equal: dict[str, Terms] = {}  # a variable -> what a condition says that it is
        self._quotients: dict[str, tuple[Terms, Terms, str]] = {}  # factors that are no variables
        self._conditions: dict[str, tuple[Terms, str, bool]] = {}  # by their text

    def quotient_factor(self, x: Terms, y: Terms, sign: str) -> str:
        """A factor that stands for ``x // y`` or ``x % y``, where y is at least 1."""
        left, right = self.bounds(x), self.bounds(y)
        code = f"(({written(x)}){sign}({written(y)}))"
        corners = [a // b for a in left for b in right]
        self._bounds[code] = (min(corners), max(corners)) if sign == "//" else (0, right[1] - 1)
        self._needs[code] = self.variables(x) | self.variables(y)
        self._quotients[code] = x, y, sign
        return code

    def variables(self, terms: Terms) -> set[str]:
        """The variables that a formula depends on."""
        return {name for factors in terms for factor in factors for name in self._needs[factor]}

    def bounds(self, terms: Terms) -> Bounds:
        """Least and greatest value that a formula may have."""
        low = high = 0
        for factors, number in terms.items():
            ends = [number]
            for factor in factors:
                ends = [a * b for a in ends for b in self._bounds[factor]]
                ends = [min(ends), max(ends)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def decide(self, terms: Terms, sign: str, met: bool) -> bool:
        """Whether ``terms sign 0`` holds; a condition, unless it always or never does."""
        terms = self._reduced(self.simplest(terms))
        low, high = self.bounds(terms)
        always = {"==": low == high == 0, "<": high < 0, "<=": high <= 0}[sign]
        never = {"==": low > 0 or high < 0, "<": low >= 0, "<=": low > 0}[sign]
        if always or never:
            return always
        self._conditions[f"{written(terms)} {sign} 0"] = terms, sign, met
        if met and sign == "==":
            self._solve(terms)
        return met

    def _reduced(self, terms: Terms) -> Terms:
        """A formula with the same sign, without factors that all terms have."""
        common = collections.Counter(next(iter(terms), ()))
        for factors in terms:
            common &= collections.Counter(factors)
        for factor in [*common]:
            if self._bounds[factor][0] < 1:
                del common[factor]
        number = math.gcd(*terms.values()) or 1
        return {
            tuple(sorted((collections.Counter(factors) - common).elements())): own // number
            for factors, own in terms.items()
        }

    def _solve(self, terms: Terms) -> None:
        """Remember what an equation says about one of its variables."""
        for factors, number in terms.items():
            name = factors[0] if len(factors) == 1 else ""
            elsewhere = {f for other in terms for f in other if other != factors}
            free = name in self.values and name not in self._equal and abs(number) == 1
            if free and not any(name in self._needs[factor] for factor in elsewhere):
                self._equal[name] = {f: -n * number for f, n in terms.items() if f != factors}
                return

    def simplest(self, terms: Terms) -> Terms:
        """The formula with all equations applied, so that equal sizes have equal formulas."""
        for _ in range(len(self._equal)):
            if not any(name in factors for name in self._equal for factors in terms):
                break
            for name, rest in self._equal.items():
                terms = substituted(terms, name, rest)
        return terms

    def fits(self, values: Mapping[str, int]) -> bool:
        """Whether the program is right for these values."""
        return all(
            SMALLEST <= value <= self._bounds[name][1] for name, value in values.items()
        ) and all(
            _HOLDS[sign](self.value(terms, values), 0) == met
            for terms, sign, met in self._conditions.values()
        )

    def value(self, terms: Terms, values: Mapping[str, int]) -> int:
        """A formula's value for these values of the variables."""
        total = 0
        for factors, number in terms.items():
            for factor in factors:
                own = values.get(factor)
                number *= self._quotient(factor, values) if own is None else own
            total += number
        return total

    def _quotient(self, factor: str, values: Mapping[str, int]) -> int:
        x, y, sign = self._quotients[factor]
        a, b = self.value(x, values), self.value(y, values)
        return a // b if sign == "//" else a % b


_HOLDS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
