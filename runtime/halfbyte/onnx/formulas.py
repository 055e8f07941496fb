"""Formulas of sizes: polynomials with whole coefficients.

A formula is a dict from the factors of each term, sorted, to the term's coefficient; the constant
has no factors, and a term with the coefficient 0 is left out.
"""

from __future__ import annotations

Terms = dict[tuple[str, ...], int]


def written(terms: Terms) -> str:
    """A formula in Python; equal ones are written in the same way."""
    parts = []
    for factors, number in sorted(terms.items()):
        names = "*".join(factors)
        parts.append(f"{number}" if not names else names if number == 1 else f"{number}*{names}")
    return "+".join(parts).replace("+-", "-") or "0"


def added(x: Terms, y: Terms) -> Terms:
    """The sum of two formulas."""
    total = dict(x)
    for factors, number in y.items():
        total[factors] = total.get(factors, 0) + number
    return {factors: number for factors, number in total.items() if number}


def scaled(x: Terms, number: int) -> Terms:
    """A formula times a number."""
    return {factors: number * own for factors, own in x.items()}


def product(x: Terms, y: Terms) -> Terms:
    """The product of two formulas."""
    total: Terms = {}
    for a, first in x.items():
        for b, second in y.items():
            factors = tuple(sorted((*a, *b)))
            total[factors] = total.get(factors, 0) + first * second
    return {factors: number for factors, number in total.items() if number}


def substituted(terms: Terms, name: str, value: Terms) -> Terms:
    """A formula with another in place of a variable."""
    total: Terms = {}
    for factors, number in terms.items():
        part: Terms = {tuple(f for f in factors if f != name): number}
        for _ in range(factors.count(name)):
            part = product(part, value)
        total = added(total, part)
    return total


def quotient_and_rest(x: Terms, y: Terms) -> tuple[Terms, Terms]:
    """q and r of x = q y + r, with as much in q as terms show."""
    if len(y) != 1:
        return ({(): 1}, {}) if x == y else ({}, x)
    ((divisor, number),) = y.items()
    quotient: Terms = {}
    rest: Terms = {}
    for factors, own in x.items():
        left = list(factors)
        for factor in divisor:
            if factor not in left:
                break
            left.remove(factor)
        else:
            if own % number == 0:
                quotient[tuple(left)] = own // number
                continue
        rest[factors] = own
    return quotient, rest
