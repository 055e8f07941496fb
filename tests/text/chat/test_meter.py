"""Everything that a template can use pays enough before it works."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from jinja2 import nodes
from jinja2.defaults import DEFAULT_FILTERS
from tests.support.sampled import sampled
from tests.text.chat.attacks import COMPILING, RENDERING

from halfbyte.text.chat.meter import TEXT_METHODS
from halfbyte.text.chat.sandbox import _ATTRIBUTES, _NODES, Sandbox
from halfbyte.text.chat.template import ChatTemplate

SANDBOX = Sandbox()
BUDGET = 200_000
RATE = 400e-9  # seconds of a unit, eight times its nominal time, where a pace is NOMINAL
SLACK = 4e-3  # seconds, of a rendering and of the clock
NOMINAL = 6e-3  # seconds of a pace on the machine for which RATE was set
N = 6000

TEXTS = ["a" * N, " " * N, "ё<" * (N // 2), "9" * 4000, "a" * 2400]
DEEP: list[Any] = [1]
for _ in range(90):
    DEEP = [DEEP]
TOWER: list[Any] = [1]
for _ in range(14):
    TOWER = [TOWER, TOWER]
SAME = [0] * 2000
LISTS: list[Any] = [
    list(range(N)), [[*SAME, 1]] * 100, {f"k{i}": i for i in range(N)}, DEEP, TOWER,
    {"b": 1, "a": 2}, 7,
]  # fmt: skip
ARGUMENTS: list[Any] = [
    "",
    "a" * 1200 + "b",
    "c" * 5000 + "b",
    10**9,
    [*SAME, 2],
    ["b"] * N,
    "string",
    2,
]
# Filters that look at the length or at one item; `default` passes a value on unchanged.
CONSTANT = {"length", "count", "first", "last", "default", "d"}
OPERATORS = ["+", "-", "*", "/", "//", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"]


def reached() -> Iterator[tuple[str, str]]:
    """Names, and expressions of `v`, `a` and `b` that use each."""
    for name in SANDBOX.filters:
        if name[0] != "(":
            for arguments in ("", "(a)", "(a, b)"):
                yield f"|{name}", f"v|{name}{arguments}"
    for name in SANDBOX.tests:
        if name.isidentifier() and name not in ("true", "false", "none"):
            yield f"is {name}", f"v is {name}"
            yield f"is {name}", f"v is {name}(a)"
    for name in TEXT_METHODS:
        for arguments in ("()", "(a)", "(a, b)"):
            yield f".{name}", f"v.{name}{arguments}"
    for operator in OPERATORS:
        yield operator, f"v {operator} a"
        yield operator, f"a {operator} v"
    yield from [("[:]", "v[1:]"), ("[:]", "v[::2]"), ("{}", "{v: 1}"), ("{}", "{'a': 1}[v]")]
    yield from [("dict", "dict(v)"), ("namespace", "namespace(v)"), ("get", "{'a': 1}.get(v)")]
    yield from [("select", f"[v]|select('{n}', a)|list") for n in ("in", "eq", "lt")]


def measured(template: Any, **variables: Any) -> tuple[bool, int, float]:
    """Whether an expression has a value, the units that it paid, and its time in seconds."""
    SANDBOX.meter.begin(BUDGET)
    start = time.thread_time()
    try:
        template.render(**variables)
        works = True
    except Exception:  # of any kind: wrong types, or too much work
        works = False
    return works, BUDGET - SANDBOX.meter.left, time.thread_time() - start


def pace() -> float:
    """Seconds of the same work each time: how slow this machine is now."""
    start = time.thread_time()
    total = 0
    for number in range(100_000):
        total += number
    return time.thread_time() - start


def too_long(template: Any, variables: dict[str, Any]) -> bool:
    """Whether it takes more than it pays for in each of five tries, on a machine at its pace."""
    for _ in range(5):
        slower = max(1.0, pace() / NOMINAL)
        _, paid, spent = measured(template, **variables)
        if spent <= slower * (SLACK + RATE * paid):
            return False
    return True


CASES = {name: [e for n, e in reached() if n == name] for name, _ in reached()}


@pytest.mark.parametrize("name", sampled(sorted(CASES), 3))
def test_time_is_paid_for(name: str) -> None:
    """On values and arguments that are each the worst case for something."""
    worked = 0
    for expression in CASES[name]:
        template = SANDBOX.from_string("{% set x = " + expression + " %}")
        firsts = ARGUMENTS if "a" in expression.split(name)[-1] or name in OPERATORS else [0]
        seconds = ["a" * 500] if ", b)" in expression else [0]
        chosen = itertools.product([*TEXTS, *LISTS], firsts, seconds)
        for number, (v, a, b) in enumerate(chosen):
            works, paid, spent = measured(template, v=v, a=a, b=b)
            worked += works
            if spent > SLACK + RATE * paid:
                values = {"v": v, "a": a, "b": b}
                assert not too_long(template, values), (expression, number, paid, spent)
    assert worked, "nothing was measured"


@pytest.mark.parametrize("name", [n for n in sorted(CASES) if n[1:] not in CONSTANT])
def test_what_is_read_is_paid_for(name: str) -> None:
    """At least a unit for each character of a value and of an argument."""
    for expression in CASES[name]:
        if name in ("and", "or") or "v|" in expression.replace(f"v{name}", ""):
            continue
        template = SANDBOX.from_string("{% set x = " + expression + " %}")
        works, paid, _ = measured(template, v="a" * N, a="b" * 9000, b=0)
        least = N + (9000 if "a)" in expression or "a," in expression else 0)
        assert paid >= least or not works, (expression, paid)


def test_nothing_else_is_reached() -> None:
    """Only the filters, tests, functions, attributes and syntax on our lists."""
    ours = {"tojson", "items"}
    assert {n for n in SANDBOX.filters if n[0] != "("} <= set(DEFAULT_FILTERS) | ours
    assert set(SANDBOX.globals) == {"dict", "namespace", "raise_exception", "range", "strftime_now"}
    for value in ("a", {}, [], (), 1, 1.5, b"", None, range(3), {}.items(), {}.keys(), object()):
        allowed = next(
            (names for kind, names in _ATTRIBUTES.items() if isinstance(value, kind)), ()
        )
        for name in dir(value):
            template = SANDBOX.from_string(f"{{{{ v.{name} is defined }}}}")
            works, _, _ = measured(template, v=value)
            assert works == (name in allowed), (value, name)
    classes = {kind for kind in vars(nodes).values() if isinstance(kind, type)}
    concrete = {k for k in classes if issubclass(k, nodes.Node) and not k.__subclasses__()}
    refused = {k.__name__ for k in concrete if not issubclass(k, _NODES)}
    assert refused == {
        "Block", "ContextReference", "DerivedContextReference", "EnvironmentAttribute", "ExprStmt",
        "Extends", "ExtensionAttribute", "FromImport", "Import", "ImportedName", "Include",
        "InternalName", "MarkSafe", "MarkSafeIfAutoescape", "OverlayScope",
        "ScopedEvalContextModifier",
    }  # fmt: skip


def test_a_clock_looks_after_the_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfbyte.text.chat.meter.SECONDS", 0.05)
    with pytest.raises(Exception, match=r"runs for too long: more than 0\.05 seconds"):
        ChatTemplate("{% for a in range(99999) %}{{ a }}{% endfor %}", "t").render([])


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("group", ["RENDERING", "COMPILING"])
def test_attacks_end_soon_in_one_line(group: str, step: int) -> None:
    """In a process whose stack Python does not guard, and which must not crash."""
    command = [sys.executable, "-m", "tests.text.chat.attacks", group, str(step)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    names = list({"RENDERING": RENDERING, "COMPILING": COMPILING}[group])
    assert [o["name"] for o in outcomes] == names[::step]
    for outcome in outcomes:
        assert outcome["seconds"] < 8, outcome
        assert outcome["megabytes"] < 200, outcome
        assert outcome["message"].isprintable(), outcome
        assert outcome["refused"] or outcome["name"].startswith("fine: "), outcome
