"""The picture of the layers is what the import contracts say."""

from __future__ import annotations

from pathlib import Path

from tests.support.tools import load_tool


def test_the_picture_is_drawn_from_the_contracts(repository: Path) -> None:
    layers = load_tool(repository, "layers")
    contracts = layers.contracts((repository / "pyproject.toml").read_text(encoding="utf-8"))
    picture = (repository / "docs/layers.svg").read_text(encoding="utf-8")
    assert layers.svg(contracts) == picture, "run `python tools/layers.py`"
    assert next(iter(contracts)) == "halfbyte"


def test_every_module_is_in_the_picture(repository: Path) -> None:
    layers = load_tool(repository, "layers")
    picture = layers.svg({"p": ["a", "b | c_d"], "p.q": ["e"]})
    assert picture.count("<rect") == 1 + 3
    for text in ("p.q", "b · c_d", "e"):
        assert f">{text}</text>" in picture
