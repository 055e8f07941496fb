"""Rules: which one decides, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfbyte.errors import FormatError
from halfbyte.evaluation.tolerances import (
    BUILT_IN,
    Rule,
    Tolerance,
    Tolerances,
    built_in,
    read_rules,
)

BASE = Rule(numbers={"rtol": 1.0, "atol": 1.0, "min_cosine": 0.0, "steps": 0})


def _rtol(*rules: Rule, layers: tuple[tuple[Rule, ...], ...] = ()) -> float:
    tolerance = Tolerances((BASE, *rules), *layers).find(
        "bert.onnx", "MatMul", "native-avx2", "float32"
    )
    return tolerance.rtol


def _rule(value: float, **patterns: str) -> Rule:
    return Rule(**patterns, numbers={"rtol": value})


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        ({}, {"type": "*"}),  # equal: the later one
        ({}, {"type": "float*"}),
        ({"type": "float*"}, {"type": "float3*"}),
        ({"type": "float3*"}, {"type": "float32"}),
        ({"type": "float32"}, {"backend": "native*"}),
        ({"backend": "native-*"}, {"backend": "native-avx*"}),
        ({"backend": "native-avx*"}, {"backend": "native-avx2"}),
        ({"backend": "native-avx2", "type": "float32"}, {"operator": "Mat*"}),
        ({"operator": "Mat*"}, {"operator": "MatMul"}),
        ({"operator": "M*M??"}, {"operator": "MatM??"}),
        ({"operator": "MatMul", "backend": "native-avx2"}, {"model": "bert*"}),
        ({"model": "bert*"}, {"model": "bert.onnx"}),
        ({"model": "bert.onnx"}, {"model": "bert.onnx", "operator": "MatMul"}),
    ],
)
def test_the_more_precise_rule_wins(weaker: dict[str, str], stronger: dict[str, str]) -> None:
    low, high = _rule(2.0, **weaker), _rule(3.0, **stronger)
    assert _rtol(low, high) == 3.0
    if stronger.get("type") != "*":
        assert _rtol(high, low) == 3.0


def test_of_equal_rules_the_later_wins() -> None:
    assert _rtol(_rule(2.0, operator="Mat*"), _rule(3.0, operator="*Mul")) == 3.0
    assert _rtol(_rule(3.0, operator="*Mul"), _rule(2.0, operator="Mat*")) == 2.0


@pytest.mark.parametrize(
    "patterns",
    [{"operator": "Gemm"}, {"model": "BERT*"}, {"backend": "numpy"}, {"type": "int*"}],
)
def test_what_does_not_match_says_nothing(patterns: dict[str, str]) -> None:
    assert _rtol(_rule(2.0, **patterns)) == 1.0


def test_layers_come_before_precision() -> None:
    precise, general = _rule(2.0, model="bert.onnx", operator="MatMul"), _rule(3.0)
    assert _rtol(precise, layers=((general,),)) == 3.0


def test_each_number_is_decided_by_itself() -> None:
    rules = Tolerances((BASE, Rule(operator="MatMul", numbers={"atol": 0.5})), (_rule(3.0),))
    tolerance = rules.find("m", "MatMul", "numpy", "float32")
    assert tolerance == Tolerance(rtol=3.0, atol=0.5, min_cosine=0.0, steps=0)


def test_the_built_in_rules_speak_of_everything() -> None:
    find = built_in().find
    plain = find("any", "Any", "any", "float32")
    assert 0 < plain.rtol < find("any", "Any", "any", "float16").rtol
    assert find("any", "QuantizeLinear", "any", "uint8").steps == 1
    assert find("any", "output-int8", "any", "float32").rtol > plain.rtol
    assert set(read_rules(BUILT_IN)[0].numbers) == {"rtol", "atol", "min_cosine", "steps"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rule = 3", "key 'rule': expected a list, found 3"),
        ("", "key 'rule': expected one or more tables [[rule]], found none"),
        ("[[rule]]\nrtol = 'x'", "key 'rule[0].rtol': expected a number, found 'x'"),
        ("[[rule]]\nrtol = true", "key 'rule[0].rtol': expected a number, found True"),
        ("[[rule]]\nrtol = -1", "key 'rule[0].rtol': expected 0 or more, found -1"),
        ("[[rule]]\nrtol = nan", "key 'rule[0].rtol': expected 0 or more, found nan"),
        ("[[rule]]\nmin_cosine = 2", "key 'rule[0].min_cosine': expected -1 to 1, found 2"),
        ("[[rule]]\nsteps = 1.5", "key 'rule[0].steps': expected a whole number, found 1.5"),
        ("[[rule]]\noperator = 1\nrtol = 1", "key 'rule[0].operator': expected text, found 1"),
        ("[[rule]]\nop = 'x'\nrtol = 1", "key 'rule[0].op': expected one of the keys model, "),
        ("[[rule]]\noperator = 'x'", "key 'rule[0].rtol': expected a number here or in atol"),
        ("[[rule]]\nrtol = 1\n[other]", "key 'other': expected one of the keys rule"),
        ("[[rule", "expected TOML"),
        ("\udcff", "expected TOML"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "t.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(FormatError) as caught:
        read_rules(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_a_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.toml"
    path.write_text("[[rule]]\nrtol = 1\n")
    monkeypatch.setattr("halfbyte.evaluation.toml_file.MAX_BYTES", 10)
    with pytest.raises(FormatError, match="at most 10 bytes"):
        read_rules(path)
