"""Definitions, native programs and ONNX Runtime refuse the same graphs, and otherwise agree."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import numpy as np
import pytest
from tests.onnx.differential import (
    Judge,
    Mutant,
    attribute_mutants,
    by_definition,
    by_programs,
    difference,
    operand_mutants,
    problems,
    random_cases,
    sweep,
)
from tests.onnx.differential_exclusions import EXCLUSIONS, OWN_EXCLUSIONS
from tests.onnx.lowered_cases import OWN, Case, all_cases

from halfbyte.onnx.lowering import lowered

PARTS = 5  # of the sweep; one of them runs here, and all with `differential --sweep`
RANDOM = 1200
SOME, FEW = 6, 18  # one of so many changes runs on fast kernels, and on slow ones


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    process = Judge()
    yield process
    process.close()


def assert_agree(mutants: Iterator[Mutant], judge: Judge | None, *backends: str) -> int:
    """Assert that there are no differences; returns the number of mutants."""
    count, differences = 0, []
    for label, case in mutants:
        count += 1
        differences += [
            f"{who}: {label}: {problem}" for who, problem in problems(label, case, judge, backends)
        ]
    assert not differences, f"{len(differences)} of {count}:\n" + "\n".join(differences[:20])
    return count


def test_every_rule_has_a_case() -> None:
    tried = {(step.domain, step.operator) for case in all_cases() for step in case.steps}
    fused = ("Attention", "LayerNormalization", "RMSNormalization", "SkipLayerNormalization")
    assert set(lowered()) <= tried | {(OWN, name) for name in fused}  # patterns become these


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.label)
def test_cases_run(case: Case, judge: Judge) -> None:
    """Without a change, no engine refuses them."""
    data = case.proto().SerializeToString()
    assert by_definition(data, case.feeds).arrays is not None
    assert by_programs(data, case.feeds).arrays is not None
    assert_agree(iter([(case.label, case)]), judge, "native", "numpy")


@pytest.mark.long
def test_each_change(judge: Judge) -> None:
    assert assert_agree(sweep(0, PARTS), judge, "native") > 2000


@pytest.mark.long
def test_random_changes(judge: Judge) -> None:
    seed = int(os.environ.get("HALFBYTE_SEED", "0"))
    assert_agree(itertools.islice(random_cases(seed), RANDOM), judge, "native")


@pytest.mark.parametrize(
    ("backend", "step"),
    [("native", SOME), ("wasm-simd128", FEW), pytest.param("native", 1, marks=pytest.mark.long)],
)
def test_sizes_and_attributes(backend: str, step: int) -> None:
    """`test_sanitizers` runs it too, with kernels that detect wrong reads."""
    every = (
        (f"{case.label}: {label}", mutant)
        for case in all_cases()
        for label, mutant in (*operand_mutants(case, sizes_only=True), *attribute_mutants(case))
        if mutant.feeds
    )
    if os.environ.get("HALFBYTE_KERNELS"):
        step = FEW
    assert assert_agree(itertools.islice(every, 0, None, step), None, backend) > 3000 // step


def test_differences_are_detected() -> None:
    case = all_cases()[0]
    data = case.proto().SerializeToString()
    outcome = by_programs(data, case.feeds)
    assert outcome.arrays is not None
    (expected,) = outcome.arrays
    for other in (
        expected[:1],
        expected.astype(np.float64),
        expected * np.float32(1.001),
        -expected,
    ):
        assert difference(case, type(outcome)([other]), outcome)
    assert difference(case, type(outcome)(None, "refused"), outcome).startswith("refuses")
    assert not difference(case, outcome, outcome)


def test_exclusions_have_reasons() -> None:
    assert all(reason for _, _, reason in (*EXCLUSIONS, *OWN_EXCLUSIONS))
