"""Each formula is written once, in `ops/` or in ONNX's definitions, which call each other.

Expressions that differ only in the names of variables are the same formula. Expressions with fewer
than four operations do not count.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import halfbyte

FUNCTIONS = {
    "abs", "clip", "cos", "erf", "exp", "expm1", "log", "log1p", "maximum", "minimum", "rint",
    "sin", "sqrt", "square", "tanh", "where",
}  # fmt: skip
MIN_OPERATIONS = 4  # including at least one function


class _Renamed(ast.NodeTransformer):
    """Renames variables by the order in which they appear."""

    def __init__(self) -> None:
        self._names = {name: name for name in ("np", "math", *FUNCTIONS)}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.setdefault(node.id, f"v{len(self._names)}"), ast.Load())


def formulas(source: str) -> Iterator[tuple[str, int]]:
    """Every formula, with renamed variables, and its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp | ast.Call):
            inner = list(ast.walk(node))
            called = [n.func for n in inner if isinstance(n, ast.Call)]
            functions = sum(getattr(f, "attr", getattr(f, "id", "")) in FUNCTIONS for f in called)
            operations = sum(isinstance(n, ast.BinOp | ast.UnaryOp) for n in inner)
            if functions and functions + operations >= MIN_OPERATIONS:
                whole = ast.parse(ast.unparse(node), mode="eval")
                yield ast.unparse(_Renamed().visit(whole)), node.lineno


def test_no_formula_is_written_twice() -> None:
    folder = next(p for p in map(Path, halfbyte.__path__) if (p / "core/ops").is_dir())
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in (*folder.glob("core/ops/*.py"), *folder.glob("onnx/reference/**/*.py")):
        for formula, line in formulas(path.read_text()):
            places[formula].append(f"{path.relative_to(folder)}:{line}")
    assert len(places) > 40
    assert {f: where for f, where in places.items() if len(where) > 1} == {}


def test_names_make_no_difference() -> None:
    first, second, third = (
        [formula for formula, _ in formulas(source)]
        for source in (
            "y = x * np.clip(x / 6 + 0.5, 0, 1)",
            "def f(wide):\n    return g(wide * np.clip(wide / 6 + 0.5, 0, 1))",
            "y = x * np.clip(z / 6 + 0.5, 0, 1)",
        )
    )
    assert set(first) & set(second)
    assert first[0] not in third
