"""Fixtures of the tests of devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfbyte.text import footprint


@pytest.fixture(autouse=True)
def _an_app(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans count the interpreter of a device's app, not that of the tests' process."""
    monkeypatch.setattr(footprint, "_at_import", 0)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the user's folder of profiles, which does not exist yet."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "halfbyte" / "devices"
