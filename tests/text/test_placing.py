"""Which memory of a browser a model's file goes to, with memories of any size."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.formats.files import model_metadata, tensor, weights

from halfbyte.core.backends import libraries
from halfbyte.errors import MemoryBudgetError, OutOfMemoryError, UnsupportedError
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text import placing
from halfbyte.text.footprint import in_tab
from halfbyte.text.opening import open_parts
from halfbyte.text.placing import MARGIN, TabPlace, header_reader
from halfbyte.text.planning import Settings, plan

NOTHING = np.empty(0, np.uint8)
GB = 10**9


class Memory:
    """Grants all that there is room for, but nothing if it is `full`."""

    def __init__(self, name: str, limit: int, used: int = 0, *, full: bool = False) -> None:
        self.name, self.bytes, self.room = name, SimpleNamespace(limit=limit), limit - used
        self._full = full

    def unset(self, size: int) -> Any:
        if self._full:
            raise MemoryError(f"{size} bytes")
        return self.name


def place(
    monkeypatch: pytest.MonkeyPatch, threads: int, shared: Any, wide: Any,
    backend: str = "native", new_pool: Any = None,
) -> TabPlace:  # fmt: skip
    """Of one with these memories, or with the errors in their place."""
    for name, memory in (("shared_library", shared), ("wide_library", wide)):

        def open_library(memory: Any = memory) -> Any:
            if isinstance(memory, Exception):
                raise memory
            return SimpleNamespace(memory=memory, new_pool=new_pool)

        monkeypatch.setattr(libraries, name, open_library)
    return TabPlace("m.gguf", Settings(), backend, threads)


SHARED, WIDE = Memory("shared", 4 * GB), Memory("wide", 16 * GB)


@pytest.mark.parametrize(
    ("threads", "shared", "size", "expected"),
    [
        (1, SHARED, GB, None),
        (1, SHARED, 3 * GB, "shared"),  # no array has so many bytes
        (2, SHARED, GB, "shared"),
        (2, SHARED, 4 * GB - MARGIN, "shared"),
        (2, SHARED, 4 * GB - MARGIN + 1, "wide"),
        (2, Memory("small", GB // 2), GB, None),  # on one thread, rather than in 64 bits
        (2, Memory("full", 4 * GB, full=True), GB, None),
        (2, Memory("full", 4 * GB, full=True), 3 * GB, "wide"),
        (2, UnsupportedError("no threads: x"), 3 * GB, "wide"),
    ],
)
def test_the_first_with_room(
    monkeypatch: pytest.MonkeyPatch, threads: int, shared: Any, size: int, expected: str | None
) -> None:
    chosen: Any = place(monkeypatch, threads, shared, WIDE).apart(size, NOTHING)
    assert chosen == expected


def test_workers_start_once_a_file_has_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which Python waits for only after the file has arrived; once for a model in several files."""
    started: list[Any] = []

    def new_pool(library: Any, threads: int, *, wait: bool) -> object:
        started.append((library.memory.name, threads, wait))
        return object()

    target = place(monkeypatch, 2, SHARED, WIDE, new_pool=new_pool)
    target.check(GB)
    assert not started
    assert [target.apart(GB, NOTHING) for _ in range(2)] == ["shared", "shared"]
    assert started == [("shared", 2, False)]


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MemoryBudgetError) as refusal:
        place(monkeypatch, 2, SHARED, UnsupportedError("no threads: y")).check(5 * GB)
    assert str(refusal.value) == (
        "5,000 MB do not fit (model's file 5,000 MB): memory of 32 bits has at most 4,000 MB here; "
        "a file in Pyodide's heap has at most 2,147 MB; y"
    )
    with pytest.raises(MemoryBudgetError, match=r"heap has at most 2,147 MB$"):
        place(monkeypatch, 2, SHARED, WIDE, "native-relaxed").check(5 * GB)


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, bytes]:
    """A model in two files, by name, with a cache that is larger than they are."""
    metadata = {**model_metadata(), "llama.context_length": np.uint32(4096)}
    named = [tensor(name, values) for name, values in weights().items()]
    for number, some in enumerate((named[:3], named[3:])):
        split = {"split.no": np.uint16(number), "split.count": np.uint16(2)}
        write_gguf(tmp_path / f"m-0000{number + 1}-of-00002.gguf", {**metadata, **split}, some)
    return {path.name: path.read_bytes() for path in sorted(tmp_path.glob("m-*"))}


def test_all_of_a_model_in_several_files(
    monkeypatch: pytest.MonkeyPatch, parts: dict[str, bytes]
) -> None:
    """Its cache and activations too, by what its files begin with."""
    headers = [header_reader(name)(len(data), data[:9000]) for name, data in parts.items()]
    first, second = map(len, parts.values())
    kinds = in_tab(plan(open_parts(parts), Settings()).memory, first + second)
    needs = sum(n for kind, n in kinds.items() if kind not in ("tokenizer", "interpreter"))
    assert needs > 2 * (first + second)
    monkeypatch.setattr(placing, "HEAP_BYTES", needs)
    for room, expected in ((needs, "shared"), (needs - 1, "wide")):
        memory = Memory("shared", room + MARGIN)
        target = place(monkeypatch, 2, memory, WIDE, new_pool=lambda *_, **options: object())
        target.expect(headers)
        target.check(first)
        chosen: list[Any] = [target.apart(size, NOTHING) for size in (first, second)]
        assert chosen == [expected, expected]
    target = place(monkeypatch, 2, memory, UnsupportedError("no threads: y"))
    target.check(first)
    target.expect([None, headers[1]])  # of one, nothing is known
    target.check(first)
    target.expect(headers)
    with pytest.raises(MemoryBudgetError, match=r"KV cache 1 MB.*heap has at most .*; y"):
        target.check(first)


def test_another_model_is_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not memory of 64 bits, which is slower: the other may be closed."""
    busy = Memory("busy", 4 * GB, used=2 * GB)
    with pytest.raises(OutOfMemoryError, match=r"now: 2,000 MB are left of 4,000 MB"):
        place(monkeypatch, 2, busy, WIDE).apart(3 * GB, NOTHING)


def test_a_file_of_the_package_that_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page unpacks it for this error."""
    absent = ImportError("kernels-64.wasm is not in the package", name="halfbyte")
    with pytest.raises(ImportError, match="kernels-64"):
        place(monkeypatch, 2, SHARED, absent).check(5 * GB)


def test_small_files_are_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    start = np.frombuffer(b"GGUF and no more", np.uint8)
    monkeypatch.setattr(placing, "LARGE", 1001)
    assert place(monkeypatch, 1, SHARED, WIDE).apart(1000, start) is None
