"""The part of the wheel that a text page loads has all that it imports, and no higher layers."""

from __future__ import annotations

import ast
import io
import tomllib
import zipfile
from pathlib import Path

import pytest

from halfbyte.web.wheel import TEXT, imports, make_wheel, without_docstrings


@pytest.fixture(scope="module")
def part() -> dict[str, str]:
    """Sources of the part by module."""
    with zipfile.ZipFile(io.BytesIO(make_wheel(graphs=False))) as archive:
        names = [name for name in archive.namelist() if name.endswith(".py")]
        return {module(name): archive.read(name).decode() for name in names}


def module(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_the_part_contains_its_imports(part: dict[str, str]) -> None:
    with zipfile.ZipFile(io.BytesIO(make_wheel())) as archive:
        everything = {module(name) for name in archive.namelist() if name.endswith(".py")}
    missing = {
        f"{name} imports {other}"
        for name, source in part.items()
        for other in imports(source)
        if other in everything and other not in part
    }
    assert not missing


def test_the_part_is_what_its_starts_import(part: dict[str, str]) -> None:
    assert {f"halfbyte.{start}" for start in TEXT} < set(part)
    assert "halfbyte.text.architectures.llama" in part
    assert not {"halfbyte.text.architectures.bert", "halfbyte.text.encoder"} & set(part)
    assert not [name for name in part if "standin" in name]


def test_the_part_has_no_layers_above_text(part: dict[str, str], repository: Path) -> None:
    contracts = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    [layers] = [
        contract["layers"]
        for contract in contracts["tool"]["importlinter"]["contracts"]
        if contract.get("containers") == ["halfbyte"]
    ]
    text = next(i for i, layer in enumerate(layers) if "text" in layer)
    above = {name.strip() for layer in layers[:text] for name in layer.split("|")} | {"onnx"}
    result = {name.split(".")[1] for name in part if "." in name}
    assert result.isdisjoint(above - {"web"})  # of `web` it has what the page calls
    assert {"core", "formats", "text", "weights"} <= result


def test_the_part_differs_by_docstrings_and_comments_only(part: dict[str, str]) -> None:
    """Statements are the same, on the same lines, and there are fewer bytes."""
    with zipfile.ZipFile(io.BytesIO(make_wheel())) as archive:
        whole = {module(n): archive.read(n).decode() for n in archive.namelist() if n[-3:] == ".py"}
    for name, source in part.items():
        assert statements(source) == statements(whole[name])
    assert sum(map(len, part.values())) < 0.8 * sum(len(whole[name]) for name in part)


def statements(source: str) -> str:
    """A module's code and the lines of its statements, without docstrings."""
    tree = ast.parse(source)
    lines = [(type(n).__name__, n.lineno) for n in ast.walk(tree) if isinstance(n, ast.stmt)]
    for node in ast.walk(tree):
        documented = isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        )
        if documented and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return f"{lines} {ast.dump(tree)}"


def test_what_looks_like_a_comment() -> None:
    """Only what surely is one goes: strings may have the mark, too."""
    source = '''"""Docs."""
# all of a line
x = 1  # the rest of one
y = "#"  # stays, after a string
z = """
# in a string
"""
'''
    bare = without_docstrings(source.encode()).decode()
    expected = source.replace('"""Docs."""', '"."').replace("# all of a line", "")
    assert bare == expected.replace("  # the rest of one", "")
