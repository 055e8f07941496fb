"""Fixtures of the tests of devices."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the user's folder of profiles, which does not exist yet."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "halfbyte" / "devices"
