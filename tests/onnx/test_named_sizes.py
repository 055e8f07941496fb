"""One program for several shapes: the bits of a program for each, and conditions that choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from tests.onnx.graphs import Net, assert_close, by_definition, outputs_of, runner
from tools.onnx_models import make

from halfbyte.onnx.runner import Runner
from halfbyte.onnx.size_arrays import with_numbers
from halfbyte.onnx.sizes import FixedSizeError, Sizes, broadcast_shapes
from halfbyte.onnx.varying import MAX_CAPTURES

Array = npt.NDArray[Any]
Feeds = dict[str, Array]


def sizes(**values: int) -> Sizes:
    places = {name: [(name, 0)] for name in values}
    return Sizes(values, dict.fromkeys(values, 1000), places)


# ---- numbers -------------------------------------------------------------------------------------


def test_arithmetic_keeps_formulas() -> None:
    under = sizes(n=12, m=5)
    n, m = under.variable("n"), under.variable("m")
    assert str((n + m) * 3 - m) == "2*m+3*n"
    assert (n * m * 384) // (m * 384) is not n
    assert str((n * m * 384) // (m * 384)) == "n"
    assert (n - n, n * 0, (n + 3) - n) == (0, 0, 3)
    assert str(-(-n // 4)) == "-1*((-1*n)//(4))"
    assert (4 * n) % 4 == 0
    formulas: list[Callable[[Any, Any], Any]] = [
        lambda n, m: n // 5, lambda n, m: n % 5, lambda n, m: -(-n // m),
        lambda n, m: (n * m + 7) // 3, lambda n, m: n // m * 2 - n % m,
    ]  # fmt: skip
    for formula in formulas:
        terms = formula(n, m).terms
        for a in range(2, 20):
            for b in range(2, 9):
                assert under.value(terms, {"n": a, "m": b}) == formula(a, b)


def test_comparisons_become_conditions_unless_bounds_decide_them() -> None:
    under = sizes(n=12, m=12)
    n, m = under.variable("n"), under.variable("m")
    assert n > 0
    assert n != 1
    assert 2 * n >= 4
    assert n <= 1000
    assert under.fits({"n": 2, "m": 1000})
    assert n < 16
    assert not under.fits({"n": 16, "m": 2})
    assert under.fits({"n": 15, "m": 2})
    assert n == m
    assert not under.fits({"n": 15, "m": 14})
    assert under.computed(n * 3).name == under.computed(m * 3).name  # equal by a condition
    assert not under.fits({"n": 1, "m": 1})  # a size of 1 broadcasts
    assert not under.fits({"n": 1001, "m": 1001})


@pytest.mark.parametrize("use", [
    int, hash, float, list([0] * 99).__getitem__, lambda n: np.zeros(n),
    lambda n: np.array([n, 1], np.int64), lambda n: list(range(n)), lambda n: n << 1,
    lambda n: n.bit_length(), lambda n: n**0.5, lambda n: 2**n, round, lambda n: n / 2,
])  # fmt: skip
def test_what_needs_the_number_is_noticed(use: Callable[[Any], Any]) -> None:
    """No number leaves a capture unseen, also not through C."""
    n = sizes(n=12).variable("n")
    assert isinstance(n, int)
    with pytest.raises(FixedSizeError):
        use(n)


@pytest.mark.parametrize("use", [
    np.asarray, lambda a: a + 1, lambda a: a == 12, lambda a: np.concatenate([a, a]), bool,
    lambda a: a.any(), lambda a: np.add(a, np.ones(2)), lambda a: np.ones(2) + a, lambda a: 12 in a,
    lambda a: a.astype(np.int32), lambda a: [int(x) for x in a],
])  # fmt: skip
def test_what_needs_numbers_of_an_array_is_noticed(use: Callable[[Any], Any]) -> None:
    n = sizes(n=12).variable("n")
    array = with_numbers(None, np.array([n, 3], object), np.int64)
    assert isinstance(array, np.ndarray)
    assert array.tolist()[1] == 3
    assert array.tolist()[0] is n
    with pytest.raises((FixedSizeError, TypeError)) as raised:
        use(array)
    assert raised.type is FixedSizeError


def test_shapes_broadcast() -> None:
    under = sizes(n=12, m=5)
    n, m = under.variable("n"), under.variable("m")
    assert broadcast_shapes((n, 1), (1, m))[0] is n
    assert broadcast_shapes((3, n), (n,))[1] is n
    assert broadcast_shapes((3, 1), (5,)) == (3, 5)
    with pytest.raises(ValueError, match="broadcast"):
        broadcast_shapes((n,), (m,))


# ---- programs ------------------------------------------------------------------------------------


def compared(proto: onnx.ModelProto, calls: list[Feeds], programs: int, **options: Any) -> Runner:
    """All calls by programs with names have the bits of programs for each shape."""
    named, fixed = runner(proto, **options), runner(proto, name_sizes=False, **options)
    for feeds in calls:
        for one, other in zip(outputs_of(named, feeds), outputs_of(fixed, feeds), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
    assert len(named.programs()) == programs
    return named


def texts(*shapes: tuple[int, int], seed: int = 1) -> list[Feeds]:
    """Calls of encoders."""
    rng = np.random.default_rng(seed)
    calls = []
    for shape in shapes:
        mask = np.ones(shape, np.int64)
        mask[0, shape[1] - 1 :] = shape[1] == 1
        ids = rng.integers(0, 90, shape)
        calls.append({"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2})
    return calls


@pytest.mark.parametrize("backend", ["native", "native-scalar", "numpy"])
@pytest.mark.parametrize("options", [{}, {"decomposed": True}, {"opset": 13}])
def test_an_encoder_has_one_program_for_all_lengths(
    backend: str, options: Mapping[str, Any]
) -> None:
    proto = make("bert-small", **options)
    calls = texts((1, 9), (1, 12), (1, 30), (1, 2), (1, 64), (1, 9))
    run = compared(proto, calls, 2, backend=backend)
    assert_close(outputs_of(run, calls[2]), by_definition(proto, calls[2]), 1e-4)


def test_batches_and_lengths_vary_together() -> None:
    calls = texts((2, 9), (3, 12), (5, 7), (2, 30), (4, 4), (1, 6), (1, 8))
    compared(make("bert-small"), calls, 3)  # the first call's, batches, one text


def test_a_cache_grows() -> None:
    """The lengths of a cache, a mask and the new tokens follow from each other."""
    proto, rng = make("gpt2-small"), np.random.default_rng(2)
    heads = [i for i in proto.graph.input if i.name.startswith("past")]
    calls = []
    for past, new in ((0, 5), (5, 1), (6, 1), (7, 1), (8, 1), (9, 3), (12, 2), (70, 1), (71, 1)):
        calls.append({
            "input_ids": rng.integers(0, 100, (1, new)),
            "attention_mask": np.ones((1, past + new), np.int64),
            "position_ids": np.arange(past, past + new)[None],
            **{i.name: rng.standard_normal((1, 4, past, 16)).astype(np.float32) for i in heads},
        })  # fmt: skip
    run = compared(proto, calls, 4)  # the first call's, one token, several, and more memory
    assert sum(1 for program in run.programs() if program.sizes) == 3


def test_pictures_of_several_sizes() -> None:
    """Sizes after strides are quotients; a decision that another size would change is noticed."""
    net = Net()
    x = net.x(1, 3, 20, 16)
    y = net.node(
        "Relu",
        net.node("Conv", x, net.constant(net.numbers(8, 3, 3, 3)), strides=[2, 2], pads=[1] * 4),
    )
    y = net.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = net.node("Conv", y, net.constant(net.numbers(4, 8, 1, 1)))
    proto = net.proto(y, net.node("GlobalAveragePool", y))
    calls = [
        {"x0": net.numbers(1, 3, h, w)}
        for h, w in ((20, 16), (24, 30), (33, 17), (9, 64), (20, 16))
    ]
    compared(proto, calls, 2)


def test_conditions_choose_between_programs() -> None:
    """What is decided by a size is decided again: here, whether one part is empty."""
    net = Net()
    x = net.x(6, 4)
    rows = net.node("Shape", x, start=0, end=1)
    half = net.node("Div", rows, net.ints(2))
    first = net.node("Slice", x, net.ints(0), half, net.ints(0))
    rest = net.node("Slice", x, half, rows, net.ints(0))
    proto = net.proto(net.node("Concat", net.node("Relu", rest), net.node("Neg", first), axis=0))
    calls = [{"x0": net.numbers(n, 4)} for n in (6, 7, 9, 12, 2, 3, 50)]
    compared(proto, calls, 4)  # the first call's, and one each where a part has 1 or 2 rows


def test_constants_follow_sizes() -> None:
    """Rows of a table and a mask of all pairs, computed from shapes."""
    net = Net()
    x = net.x(2, 5, 4)
    length = net.node("Shape", x, start=1, end=2)
    table = net.constant(net.numbers(40, 4))
    y = net.node("Add", x, net.node("Slice", table, net.ints(0), length, net.ints(0)))
    count = net.node("Squeeze", length, net.ints(0))
    places = net.node("Range", net.constant(0, np.int64), count, net.constant(1, np.int64))
    earlier = net.node(
        "Less",
        net.node("Unsqueeze", places, net.ints(0)),
        net.node("Unsqueeze", places, net.ints(1)),
    )
    mask = net.node("Where", earlier, net.constant(0.0), net.constant(-5.0))
    scores = net.node("MatMul", y, net.node("Transpose", y, perm=[0, 2, 1]))
    proto = net.proto(net.node("Softmax", net.node("Add", scores, mask), axis=-1))
    calls = [{"x0": net.numbers(2, n, 4)} for n in (5, 7, 3, 40, 7)]
    run = compared(proto, calls, 2)
    assert any(program.sizes for program in run.programs())


def test_sizes_that_numbers_need_have_a_program_each() -> None:
    """A definition in NumPy computes a table from the shape."""
    net = Net()
    x = net.x(2, 6)
    length = net.node("Shape", x, start=1, end=2)
    window = net.node("HannWindow", net.node("Squeeze", length, net.ints(0)))
    proto = net.proto(net.node("Mul", x, window))
    compared(proto, [{"x0": net.numbers(2, n)} for n in (6, 7, 8)], 3)


def test_sizes_whose_conditions_keep_failing_are_given_up() -> None:
    """Each length here is another decision; captures with names end after some."""
    net = Net()
    x = net.x(1, 6)
    rows = net.node("Shape", x, start=1, end=2)
    ones = net.node("ConstantOfShape", net.node("Mod", rows, net.ints(97)))
    proto = net.proto(net.node("Concat", x, net.node("Unsqueeze", ones, net.ints(0)), axis=1))
    calls = [{"x0": net.numbers(1, n)} for n in range(2, 2 + MAX_CAPTURES + 4)]
    named, fixed = runner(proto), runner(proto, name_sizes=False)
    for feeds in calls:
        for one, other in zip(outputs_of(named, feeds), outputs_of(fixed, feeds), strict=True):
            np.testing.assert_array_equal(one, other)


def test_larger_sizes_get_more_memory() -> None:
    """A program has memory up to a size; beyond it another one is captured."""
    net = Net()
    y = net.node("Exp", net.x(4, 8))
    proto = net.proto(y)
    run = compared(proto, [{"x0": net.numbers(n, 8)} for n in (4, 5, 64, 65, 90, 64)], 3)
    assert [p.outputs[y].nbytes // 32 for p in run.programs()] == [
        4, 64, 128,
    ]  # fmt: skip


def test_programs_are_kept_up_to_a_number_of_bytes() -> None:
    net = Net()
    proto = net.proto(net.node("Exp", net.x(4, 8)))
    run = runner(proto, name_sizes=False, max_bytes=3 * 2 * 1024)
    for count in (32, 31, 30, 29, 32):  # inputs and outputs of 1 KB each
        outputs_of(run, {"x0": net.numbers(count, 8)})
    weights, programs, count = run.memory()
    assert weights == 0
    assert programs <= 3 * 2 * 1024
    assert count == 3
    assert [p.inputs["x0"].shape[0] for p in run.programs()] == [30, 29, 32]
    tiny = runner(proto, max_bytes=0)
    for count in (32, 31, 30):
        outputs_of(tiny, {"x0": net.numbers(count, 8)})
    assert len(tiny.programs()) == 1  # that of the last run


def test_sizes_are_not_named_where_their_memory_would_be_too_much() -> None:
    net = Net()
    proto = net.proto(net.node("Exp", net.x(40, 8)))
    calls = [{"x0": net.numbers(n, 8)} for n in (40, 41, 42)]
    needed = 2 * 64 * 8 * 4  # 64 rows, in and out
    for limit, named in ((needed - 1, False), (needed, True)):
        run = runner(proto, max_bytes=limit)
        for feeds in calls:
            assert_close(outputs_of(run, feeds), by_definition(proto, feeds))
        assert bool(run.programs()[-1].sizes) == named
