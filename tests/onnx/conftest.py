"""Backends of graphs: all but the file of kernels that has only those of language models."""

from __future__ import annotations

import pytest
from tests.conftest import ONCE, runs_here

TEXT_ONLY = "wasm-relaxed64"


@pytest.fixture(params=[name for name in ONCE if name != TEXT_ONLY])
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend in turn; a required one that does not run here fails."""
    return runs_here(request.param)


@pytest.fixture(scope="session")
def compiled_backends(compiled_backends: list[str]) -> list[str]:
    """Every table of kernels that graphs can use."""
    return [name for name in compiled_backends if name != TEXT_ONLY]
