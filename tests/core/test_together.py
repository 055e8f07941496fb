"""Instructions that run at the same time: which may, and that they do."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.core.test_threads import RUN
from tests.support.tools import until

import halfbyte
from halfbyte.core.backends.libraries import library
from halfbyte.core.backends.library import INSTRUCTION
from halfbyte.core.backends.threads import Pool
from halfbyte.core.backends.together import MAX_TOGETHER, Accesses, followers

A, B, C, D = (0, 10), (10, 20), (20, 30), (30, 40)  # places in memory


@pytest.mark.parametrize(
    ("accesses", "expected"),
    [
        ([Accesses([A], [B]), Accesses([A], [C]), Accesses([A], [D])], [2, 1, 0]),
        ([Accesses([A], [B]), Accesses([B], [C])], [0, 0]),  # reads what the first writes
        ([Accesses([A], [B]), Accesses([C], [A])], [0, 0]),  # writes what the first reads
        ([Accesses([A], [B]), Accesses([C], [B])], [0, 0]),  # both write it
        ([Accesses([A], [(5, 11)]), Accesses([B], [C])], [0, 0]),  # one byte in common
        ([Accesses([A], [B]), Accesses([A], [C]), Accesses([B], [D])], [1, 0, 0]),
        ([Accesses([A], [B]), None, Accesses([A], [C]), Accesses([A], [D])], [0, 0, 1, 0]),
        ([], []),
    ],
)
def test_which_may(accesses: list[Accesses | None], expected: list[int]) -> None:
    assert followers(accesses) == expected


def test_groups_are_short() -> None:
    many = [Accesses([A], [(n, n + 1)]) for n in range(100, 100 + MAX_TOGETHER + 2)]
    assert followers(many) == [*range(MAX_TOGETHER - 1, -1, -1), 1, 0]


def test_products_of_one_input_run_together(native_backends: list[str], storyteller: Path) -> None:
    """Queries, keys and values; gate and up. Nothing that depends on another's result does."""
    assert native_backends
    with halfbyte.load(storyteller, threads=2) as model:
        executable = model.executable
        code = np.asarray(executable._code)  # type: ignore[attr-defined]
        together = code["together"].tolist()
        program = model.program.instructions
        three = two = 0
        for at, count in enumerate(together):
            names = [i.operator.name for i in program[at : at + count + 1]]
            three += count == 2 and names == 3 * ["matmul"]
            two += count == 1 and names == 2 * ["matmul"]
            written = {b.root for i in program[at : at + count] for b in i.outputs}
            assert not written & {b.root for b in program[at + count].inputs}
        assert three == two // 2 > 0  # values with keys and gate with up
    with halfbyte.load(storyteller, threads=1) as model:
        assert not np.asarray(model.executable._code)["together"].any()  # type: ignore[attr-defined]


def test_they_run_at_the_same_time(native_backends: list[str]) -> None:
    """A helper works on the second while the first is not finished; each chunk runs once."""
    assert native_backends
    kernels, units = library(), (100, 60)
    kernel = kernels.kernels["memory_read"]
    here, second, done = threading.get_ident(), threading.Event(), list[tuple[int, int, int]]()

    code = np.zeros(3, INSTRUCTION)
    code["kernel"], code["together"] = kernel.index, [1, 0, 0]
    at = [field.name for field in kernel.fields].index("n")
    code["slot"][:, at] = [*units, 0]
    slots = {code["slot"][i].ctypes.data: i for i in range(3)}

    def chunk(_: int, arguments: int, begin: int, end: int) -> None:
        number = slots[arguments]
        if threading.get_ident() != here and number == 1:
            second.set()
        elif threading.get_ident() == here and number == 0 and begin == 0:
            assert second.wait(20)
        done.append((number, begin, end))

    run = RUN(chunk)
    table = ctypes.cast(run, ctypes.c_void_p)  # whose first member it is
    pool = Pool(kernels, 2)
    pool.wake()
    until(lambda: kernels.pool_announce(pool.address) == 1)
    end = kernels.run(ctypes.addressof(table), code.ctypes.data, 0, 3, 0, 0, 0, pool.address, 0)
    pool.close()
    assert end == 3
    assert second.is_set()
    for number, count in enumerate(units):
        covered = sorted((begin, end) for which, begin, end in done if which == number)
        assert [begin for begin, _ in covered] == [0, *(end for _, end in covered[:-1])]
        assert covered[-1][1] == count
