"""docs/operators.md is what its tool writes, and its columns are right."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.tools import load_tool

from halfbyte.onnx.lowering import lowered
from halfbyte.onnx.reference import operators


def test_the_page_is_up_to_date(repository: Path) -> None:
    """Else: python tools/make_operators_page.py."""
    tool = load_tool(repository, "make_operators_page")
    assert tool.TARGET.read_text("utf-8") == tool.page()


def test_every_operator_has_a_row(repository: Path) -> None:
    tool = load_tool(repository, "make_operators_page")
    lines = tool.page().splitlines()
    for operator in operators():
        assert tool.row(*operator) in lines
        folder = repository / "runtime/halfbyte/onnx/reference"
        assert (folder / tool.file_of(*operator)).is_file()
    assert sum(line.startswith("|") for line in lines) == len(operators()) + 2 * len(tool.DOMAINS)
    on_kernels = {operator for operator in operators() if tool.kernels(*operator) != "no"}
    assert on_kernels == {*lowered(), *((tool.MICROSOFT, name) for name in tool.SPELLED_OUT)}


@pytest.mark.parametrize(("operator", "kernels"), [
    (("", "Shape"), "always"), (("", "Conv"), "where they fit"), (("", "DeformConv"), "no"),
    (("com.microsoft", "SkipLayerNormalization"), "where they fit"),
])  # fmt: skip
def test_kernels(repository: Path, operator: tuple[str, str], kernels: str) -> None:
    assert load_tool(repository, "make_operators_page").kernels(*operator) == kernels
