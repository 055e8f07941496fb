"""docs/standins.md has the tables that its tool writes."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
from tests.onnx.session.models import HALFBYTE
from tests.support.tools import load_tool


def test_the_page_is_up_to_date(repository: Path) -> None:
    """Else: python tools/make_standin_page.py."""
    tool = load_tool(repository, "make_standin_page")
    text = tool.TARGET.read_text("utf-8")
    assert text == tool.page(text)


def test_every_member_is_there_or_refused(repository: Path) -> None:
    tool = load_tool(repository, "make_standin_page")
    states = {name: tool.state(HALFBYTE, name) for name in tool.members(onnxruntime)}
    assert len(states) > 55
    assert tool.MISSING not in states.values()
    assert states["InferenceSession"] == tool.THERE
    assert states["ModelCompiler"] == tool.REFUSED
    assert states["disable_telemetry_events"] == tool.IGNORED
    for kind in tool.CLASSES:
        theirs, ours = getattr(onnxruntime, kind), getattr(HALFBYTE, kind)
        for name in tool.members(theirs):
            assert tool.state(ours, name) != tool.MISSING, f"{kind}.{name}"
    assert tool.state(HALFBYTE.RunOptions, "add_active_adapter") == tool.REFUSED
