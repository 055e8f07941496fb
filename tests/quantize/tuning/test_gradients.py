"""Gradients of operators, against differences of their results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.quantize.tuning.cases import CASES, normal

from halfbyte.core import ops
from halfbyte.core.backends import open_program
from halfbyte.core.passes import plan_memory
from halfbyte.core.program import capture
from halfbyte.errors import ProgramError, UnsupportedError
from halfbyte.quantize.tuning.gradients import RULES, attention, linear, loss
from halfbyte.quantize.tuning.reverse import reverse
from halfbyte.text.opening import open_model
from halfbyte.text.planning import Settings, capture_model

STEP, BOUND = 1e-2, 4e-3  # of central differences of float32


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_differences(name: str) -> None:
    """Along random directions; an error in one element of a gradient is beyond the bound."""
    case = CASES[name]
    seed = normal(*case.run(case.operands)["result"].shape, seed=7)
    gradients = case.run(case.operands, seed)
    for operand, x in case.operands.items():
        assert gradients[operand].shape == x.shape
        for direction in (normal(*x.shape, seed=s) for s in range(3)):
            ends = [
                case.run({**case.operands, operand: (x + h * direction).astype(np.float32)})[
                    "result"
                ]
                for h in (STEP, -STEP)
            ]
            difference = float(((ends[0] - ends[1]).astype(np.float64) * seed).sum()) / (2 * STEP)
            along = float((gradients[operand].astype(np.float64) * direction).sum())
            size = float(np.linalg.norm(gradients[operand]) * np.linalg.norm(direction))
            assert abs(difference - along) <= BOUND * size


def test_every_rule_has_a_case() -> None:
    named = {name.partition("-")[0] for name in CASES} - {"tied"}
    covered = {"attention": {"group_query_attention", "cache_write", "cache_write_keys"}}
    expected = {"rotary": {"rotary_embedding"}, **covered}
    assert {o.name for o in RULES} == set().union(*(expected.get(n, {n}) for n in named))


def test_a_model_s_gradients_are_differences(storyteller: Path) -> None:
    """Of all tensors of a whole model, on both backends, for fewer tokens than planned."""
    file = open_model(storyteller)
    program = capture_model(file, Settings(context=32, batch=32))
    wanted = {b.name: b for b in program.buffers if b.name in file.tensors}
    assert wanted.keys() == file.tensors.keys()
    made = reverse(program, wanted, keep=("logits",))
    assert sorted(made.program.outputs) == sorted(["logits", *(f"d {name}" for name in wanted)])
    results = []
    seeds = normal(4, 1024, seed=1)
    for backend in ("numpy", "native"):
        executable = open_program(plan_memory(made.program), backend)
        executable.array(made.program.inputs["ids"])[:9] = range(1, 10)
        executable.array(made.seeds["logits"])[:4] = seeds
        executable.run({"n": 9, "position": 0, "rows": 4})
        results.append({n: executable.array(b).copy() for n, b in made.gradients.items()})
        executable.close()
    for name, gradient in results[0].items():
        top = np.abs(gradient).max()
        np.testing.assert_allclose(results[1][name], gradient, rtol=0, atol=2e-5 * top)


def test_operators_without_a_rule_are_refused_by_name() -> None:
    with capture("p") as program:
        x = program.input("x", "f32", (2, 32))
        program.output("y", ops.hadamard(x))
    with pytest.raises(UnsupportedError, match=r"operator hadamard \(Hadamard\) has no gradient"):
        reverse(program, {"x": x})


def test_outputs_must_depend_on_what_is_wanted() -> None:
    with capture("p") as program:
        x, z = (program.input(n, "f32", (2, 32)) for n in "xz")
        program.output("y", ops.silu(x))
    with pytest.raises(ProgramError, match="no output depends on 'other'"):
        reverse(program, {"x": x, "other": z})


def test_what_gradients_do_not_need_is_left_out() -> None:
    with capture("p") as program:
        x = program.input("x", "f32", (2, 32))
        program.output("y", ops.add(ops.silu(x), ops.gelu(x, approximate="tanh")))
    made = reverse(program, {"x": x})
    assert [i.operator.name for i in made.program.instructions] == ["gelu_dx", "silu_dx", "add"]
    assert not made.program.outputs.keys() & {"y"}
    with_y = reverse(program, {"x": x}, keep=("y",))
    assert len(with_y.program.instructions) == 6


def test_views_of_results_are_refused() -> None:
    """Their gradients would be left out: of y, which is also read in another shape."""
    with capture("p") as program:
        x = program.input("x", "f32", (2, 32))
        y = ops.silu(x)
        program.output("z", ops.add(ops.silu(y), ops.silu(y.view((4, 16))).view((2, 32))))
    with pytest.raises(UnsupportedError, match="operator silu reads a view"):
        reverse(program, {"x": x})


@pytest.mark.parametrize(
    "name", [n for n in CASES if n.startswith(("attention", "matmul", "product", "divergence"))]
)
def test_parts_do_not_change_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is processed some rows at a time, as it is for operands of real sizes."""
    case = CASES[name]
    seed = normal(*case.run(case.operands)["result"].shape, seed=7)
    whole = case.run(case.operands, seed)
    parts = ((attention, "_ROWS", 2), (linear, "_DECODED", 2 * 32), (loss, "_NUMBERS", 2 * 12))
    for module, number, few in parts:
        monkeypatch.setattr(module, number, few)
    for operand, gradient in case.run(case.operands, seed).items():
        top = np.abs(whole[operand]).max()
        np.testing.assert_allclose(gradient, whole[operand], rtol=0, atol=2e-6 * top)
