"""Parses regular expressions in RE2's syntax into trees."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from halfbyte.errors import FormatError, UnsupportedError

MAX_REPEATS = 1000  # RE2's
MAX_NESTED = 100

Test = Callable[[str], bool]
Tree: TypeAlias = "tuple[Any, ...]"

# Tree: ("one", test) | ("all", [tree]) | ("any", [tree]) | ("repeat", tree, least, most or None)
#       | ("at", where), where is ^ $ b or B, of lines ^^ and $$


def _between(*pairs: str) -> Test:
    return lambda c: any(pair[0] <= c <= pair[-1] for pair in pairs)


WORD = _between("09", "AZ", "az", "_")
CLASSES: dict[str, Test] = {
    "d": _between("09"), "s": lambda c: c in "\t\n\f\r ", "w": WORD,
}  # fmt: skip
POSIX: dict[str, Test] = {
    "alnum": _between("09", "AZ", "az"), "alpha": _between("AZ", "az"),
    "ascii": _between("\0\x7f"), "blank": lambda c: c in "\t ",
    "cntrl": _between("\0\x1f", "\x7f"), "digit": _between("09"), "graph": _between("!~"),
    "lower": _between("az"), "print": _between(" ~"), "punct": _between("!/", ":@", "[`", "{~"),
    "space": _between("\t\r", " "), "upper": _between("AZ"), "word": WORD,
    "xdigit": _between("09", "AF", "af"),
}  # fmt: skip
ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _not(test: Test) -> Test:
    return lambda c: not test(c)


def _any_case(test: Test) -> Test:
    return lambda c: test(c) or test(c.lower()) or test(c.upper())


@dataclass
class Parser:
    """One pass over a pattern; `flags` are those in effect, of "imsU"."""

    text: str
    at: int = 0
    depth: int = 0
    flags: frozenset[str] = frozenset()

    def error(self, problem: str) -> FormatError:
        return FormatError(f"pattern {self.text[:80]!r}: {problem} at {self.at}")

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        if self.at >= len(self.text):
            raise self.error("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def skip(self, part: str) -> bool:
        if not self.text.startswith(part, self.at):
            return False
        self.at += len(part)
        return True

    def until(self, end: str) -> str:
        stop = self.text.find(end, self.at)
        if stop < 0:
            raise self.error(f"no {end!r} after it")
        part, self.at = self.text[self.at : stop], stop + len(end)
        return part

    def whole(self) -> Tree:
        tree = self.choice()
        if self.at < len(self.text):
            raise self.error("an unopened ')'")
        return tree

    def choice(self) -> Tree:
        self.depth += 1
        if self.depth > MAX_NESTED:
            raise UnsupportedError(f"pattern {self.text[:80]!r}: nested more than {MAX_NESTED}")
        outside, ways = self.flags, [self.row()]
        while self.skip("|"):
            ways.append(self.row())
        self.flags = outside
        self.depth -= 1
        return ("any", ways)

    def row(self) -> Tree:
        parts: list[Tree] = []
        while self.at < len(self.text) and self.peek() not in "|)":
            if self.skip("\\Q"):
                stop = self.text.find("\\E", self.at)
                quoted = self.text[self.at : stop if stop >= 0 else None]
                parts += [("one", self.literal(c)) for c in quoted]
                self.at = stop + 2 if stop >= 0 else len(self.text)
            else:
                parts.append(self.repeats(self.atom()))
        return ("all", parts)

    def repeats(self, tree: Tree) -> Tree:
        for _ in range(MAX_NESTED):
            if not self.peek() or self.peek() not in "*+?{":
                return tree
            sign = self.take()
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign) or self.counts()
            if bounds is None:  # a brace that is not a count is a literal
                self.at -= 1
                return tree
            self.skip("?")  # a lazy repeat matches the same texts
            tree = ("repeat", tree, *bounds)
        raise UnsupportedError(f"pattern {self.text[:80]!r}: {MAX_NESTED} repeats of one part")

    def counts(self) -> tuple[int, int | None] | None:
        stop = self.text.find("}", self.at)
        low, comma, high = self.text[self.at : max(stop, self.at)].partition(",")
        digits = (low + high).isascii() and (low + high).isdigit() and low
        if not digits or stop < 0:
            return None
        minimum = int(low[:5])
        maximum = (int(high[:5]) if high else None) if comma else minimum
        if max(minimum, maximum or 0) > MAX_REPEATS or (maximum is not None and maximum < minimum):
            raise self.error(f"repeated {{{low}{comma}{high}}}, expected at most {MAX_REPEATS}")
        self.at = stop + 1
        return minimum, maximum

    def literal(self, wanted: str) -> Test:
        test: Test = wanted.__eq__
        return _any_case(test) if "i" in self.flags else test

    def atom(self) -> Tree:
        sign = self.take()
        if sign == "(":
            return self.group()
        if sign == "[":
            return ("one", self.set())
        if sign == ".":
            return ("one", (lambda c: True) if "s" in self.flags else "\n".__ne__)
        if sign in "^$":
            return ("at", sign * 2 if "m" in self.flags else sign)
        if sign in "*+?":
            raise self.error(f"nothing to repeat before {sign!r}")
        if sign == "\\":
            if self.peek() and self.peek() in "bBAz":
                sign = self.take()
                return ("at", {"A": "^", "z": "$"}.get(sign, sign))
            test = self.escaped()
            return ("one", self.literal(test) if isinstance(test, str) else test)
        return ("one", self.literal(sign))

    def group(self) -> Tree:
        if self.skip("?"):
            if self.skip("P<") or (self.peek() == "<" and self.text[self.at + 1 :][:1] not in "=!"):
                self.until(">")
            else:
                outside = self.flags
                added, _, removed = self.modifiers().partition("-")
                self.flags = (self.flags | set(added)) - set(removed)
                if self.text[self.at - 1] == ")":
                    return ("all", [])  # for the rest of the enclosing group
                tree = self.choice()
                self.flags = outside
                return self.closed(tree)
        return self.closed(self.choice())

    def modifiers(self) -> str:
        start = self.at
        while self.peek() and self.peek() in "imsU-":
            self.at += 1
        letters = self.text[start : self.at]
        if self.take() not in ":)" or letters.count("-") > 1:
            raise self.error("a group that RE2 does not have")
        return letters

    def closed(self, tree: Tree) -> Tree:
        if not self.skip(")"):
            raise self.error("an unclosed '('")
        return tree

    def escaped(self) -> Test | str:
        """The part after a backslash: one character, or a class of characters."""
        sign = self.take()
        if sign.lower() in CLASSES:
            return CLASSES[sign] if sign in CLASSES else _not(CLASSES[sign.lower()])
        if sign in "pP":
            name = self.until("}") if self.skip("{") else self.take()
            return self.category(name, negated=sign == "P")
        if sign == "x":
            digits = self.until("}") if self.skip("{") else self.take() + self.take()
            return self.character(digits, 16)
        if sign in "01234567":
            digits = sign
            while len(digits) < 3 and self.peek() and self.peek() in "01234567":
                digits += self.take()
            if sign != "0" and len(digits) < 2:
                raise self.error("a reference back, which RE2 does not have")
            return self.character(digits, 8)
        if sign in ESCAPES:
            return ESCAPES[sign]
        if sign.isascii() and sign.isalnum():
            raise self.error(f"unknown escape \\{sign}")
        return sign

    def character(self, digits: str, base: int) -> str:
        try:
            return chr(int(digits[:8], base))
        except ValueError:
            raise self.error(f"no character of number {digits[:8]!r}") from None

    def category(self, name: str, negated: bool) -> Test:
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if len(name) > 2 or name[:1] not in "LMNPSZC" or not name:
            raise UnsupportedError(f"pattern {self.text[:80]!r}: class \\p{{{name[:20]}}}")
        return lambda c: unicodedata.category(c).startswith(name) != negated

    def set(self) -> Test:
        """The part after "[": the characters between the brackets."""
        negated = self.skip("^")
        tests: list[Test] = []
        first = True
        while first or self.peek() != "]":
            first = False
            low = self.member()
            if not isinstance(low, str):
                tests.append(low)
                continue
            high: Test | str = low
            if self.peek() == "-" and self.text[self.at + 1 :][:1] not in ("]", ""):
                self.at += 1
                high = self.member()
            if not isinstance(high, str) or high < low:
                raise self.error("a range that ends before it begins")
            tests.append(_between(low + high))
        self.at += 1
        either: Test = lambda c: any(test(c) for test in tests)  # noqa: E731
        either = _any_case(either) if "i" in self.flags else either
        return _not(either) if negated else either

    def member(self) -> Test | str:
        if self.skip("[:"):
            name = self.until(":]")
            test = POSIX.get(name.removeprefix("^"))
            if test is None:
                raise self.error(f"unknown class {name[:20]!r}")
            return _not(test) if name.startswith("^") else test
        sign = self.take()
        return self.escaped() if sign == "\\" else sign
