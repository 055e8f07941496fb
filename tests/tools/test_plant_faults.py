"""The list of faults fits the code: what it replaces is there, and so are the tests it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.core.ops.test_operators import CASES
from tests.support.tools import load_tool

REPOSITORY = Path(__file__).parents[2]
plant_faults = load_tool(REPOSITORY, "plant_faults")
FAULTS = plant_faults.read_faults(plant_faults.FAULTS)


def test_there_are_enough_of_both_kinds() -> None:
    operators = {fault.operator for fault in FAULTS if fault.operator}
    assert len(operators) >= 30
    assert sum(not fault.operator for fault in FAULTS) >= 30
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted(fault: Any) -> None:
    text = (REPOSITORY / fault.file).read_text(encoding="utf-8")
    assert plant_faults.changed(text, fault) != text
    for tests in fault.tests:
        path, _, name = tests.partition("::")
        assert (REPOSITORY / path).exists()
        assert not name or f"def {name}(" in (REPOSITORY / path).read_text(encoding="utf-8")
    if fault.operator:
        ids = (f"{case.operator.name}-{case.label}-" for case in CASES)
        assert any(case.startswith(f"{fault.operator}-") for case in ids)


def test_a_piece_that_occurs_twice_is_refused() -> None:
    fault = plant_faults.Fault("name", "a.py", "x", "y")
    with pytest.raises(ValueError, match=r"a\.py: 'x' occurs 2 times, expected once"):
        plant_faults.changed("x = x", fault)
