"""How much memory there is, as far as the system tells."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from halfbyte.room import available_bytes


def test_a_module_resource_that_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """As JupyterLite has it."""
    monkeypatch.setitem(sys.modules, "resource", ModuleType("resource"))
    assert available_bytes() > 0
