"""Regular expressions in RE2's syntax, matched in time linear in the text.

A pattern becomes an automaton of at most `MAX_STATES` states; all states that the text may have
reached are followed at once, without backtracking. What RE2 lacks (back-references, lookaround) is
refused, as are Unicode's scripts, of which Python's standard library has no table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from halfbyte.errors import UnsupportedError
from halfbyte.onnx.reference._regex_parser import WORD, Parser, Test, Tree

MAX_STATES = 20_000


@dataclass
class Pattern:
    """A pattern as an automaton.

    Raises
    ------
    FormatError
        The pattern is not in RE2's syntax.
    UnsupportedError
        It needs more than `MAX_STATES` states, or classes that are not known here.
    """

    text: str
    tests: list[Test | str | None] = field(
        init=False
    )  # a test of a character, an assertion, or a choice
    ways: list[tuple[int, ...]] = field(init=False)
    start: int = field(init=False)

    def __post_init__(self) -> None:
        self.tests, self.ways = [None], [()]  # state 0: matched
        self.start = self._automaton(Parser(self.text).whole(), 0)

    def _state(self, test: Test | str | None, *ways: int) -> int:
        if len(self.tests) >= MAX_STATES:
            raise UnsupportedError(f"pattern {self.text[:80]!r}: more than {MAX_STATES} states")
        self.tests.append(test)
        self.ways.append(ways)
        return len(self.tests) - 1

    def _automaton(self, tree: Tree, then: int) -> int:
        """The first state of `tree`, whose last state leads to `then`."""
        match tree:
            case ("one" | "at", test):
                return self._state(test, then)
            case ("all", [*parts]):
                for part in reversed(parts):
                    then = self._automaton(part, then)
                return then
            case ("any", [*ways]):
                return self._state(None, *(self._automaton(way, then) for way in ways))
            case ("repeat", tuple() as inner, int(minimum), maximum):
                if maximum is None:
                    again = self._state(None)
                    self.ways[again] = (self._automaton(inner, again), then)
                    then = again
                else:
                    end = then
                    for _ in range(maximum - minimum):
                        then = self._state(None, self._automaton(inner, then), end)
                for _ in range(minimum):
                    then = self._automaton(inner, then)
                return then
        raise AssertionError(tree)

    def full_match(self, text: str) -> bool:
        """Whether the pattern matches all of `text`."""
        states = self._reached([self.start], text, 0)
        for at, character in enumerate(text):
            after = [
                self.ways[state][0]
                for state in states
                if callable(test := self.tests[state]) and test(character)
            ]
            if not after:
                return False
            states = self._reached(after, text, at + 1)
        return 0 in states

    def _reached(self, states: Iterable[int], text: str, at: int) -> set[int]:
        """The states that are reached from these without reading a character."""
        reached: set[int] = set()
        left = list(states)
        while left:
            state = left.pop()
            if state in reached:
                continue
            reached.add(state)
            test = self.tests[state]
            if test is None or (isinstance(test, str) and _is_at(test, text, at)):
                left.extend(self.ways[state])
        return reached


def _is_at(where: str, text: str, at: int) -> bool:
    before, after = text[max(at - 1, 0) : at], text[at : at + 1]
    if where in "bB":
        edge = bool(before and WORD(before)) != bool(after and WORD(after))
        return edge == (where == "b")
    side = before if where[0] == "^" else after
    return not side or (len(where) == 2 and side == "\n")
