"""halfbyte inside Pyodide, in Chromium: the kernels give the same tokens as natively."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from tests.browser.conftest import TABLES, Python

import halfbyte
from halfbyte.web.wheel import make_kernels, make_wheel, without_docstrings

TOKENS = 120
MODELS = ("F32", "Q8_0", "Q4_0", "Q5_1", "Q4_K_M")

FETCH = f"""
names = {MODELS}
from pyodide.http import pyfetch
from pathlib import Path
for name in names:
    response = await pyfetch(f"/models/{{name}}.gguf")
    Path(f"/tmp/{{name}}.gguf").write_bytes(await response.bytes())
True
"""

GENERATE = """
import os, sys
import halfbyte
from halfbyte.core.backends.libraries import instruction_sets, library, shared_library
from pathlib import Path
os.environ["HALFBYTE_KERNELS"] = str(Path(halfbyte.__path__[0]) / "{file}")
library.cache_clear()
shared_library.cache_clear()
instruction_sets.cache_clear()
texts = dict()
for name in {models}:
    with halfbyte.load(f"/tmp/{{name}}.gguf") as model:
        text = model.generate("", max_tokens={tokens}, temperature=0)
        texts[name] = [model.executable.backend, text]
del os.environ["HALFBYTE_KERNELS"]
library.cache_clear()
shared_library.cache_clear()
shared_library.cache_clear()
instruction_sets.cache_clear()
texts
"""


@pytest.fixture(scope="module")
def expected(models: Path) -> dict[str, str]:
    """Greedy texts generated natively."""
    texts = {}
    for name in MODELS:
        with halfbyte.load(models / f"{name}.gguf") as model:
            texts[name] = model.generate("", max_tokens=TOKENS, temperature=0)
    return texts


def test_chromium_gets_the_fastest_table(python: Python) -> None:
    code = "from halfbyte.core.backends import available; available()"
    assert python.run(code) == ["native-relaxed", "numpy"]


@pytest.mark.parametrize("table", TABLES)
def test_golden_texts(python: Python, expected: dict[str, str], table: str) -> None:
    assert python.run(FETCH) is True
    result = python.run(GENERATE.format(file=TABLES[table], tokens=TOKENS, models=MODELS))
    assert result == {name: [f"native-{table}", text] for name, text in expected.items()}


def test_shipped_model_in_two_lines(python: Python) -> None:
    code = (
        "import halfbyte; from pathlib import Path; "
        "path = Path(halfbyte.__path__[0]) / 'data/storyteller.bin'\n"
        "halfbyte.load(path).generate('Once upon a time', max_tokens=40, seed=1)"
    )
    text = python.run(code)
    assert len(text.split()) > 15


def test_texts_take_turns_without_threads(python: Python) -> None:
    """Texts in one task and in several tasks, with a session between them."""
    code = """
import asyncio, halfbyte
from pathlib import Path
model = halfbyte.load(Path(halfbyte.__path__[0]) / "data/storyteller.bin")
options = {"max_tokens": 9, "seed": 1}
expected = [model.generate(prompt, **options) for prompt in ("Once", "Tom")]
both = zip(model.stream("Once", **options), model.stream("Tom", **options))
one_reader = ["".join(pieces) for pieces in zip(*both)]

async def read(prompt):
    return "".join([piece async for piece in model.astream(prompt, **options)])

tasks = await asyncio.gather(read("Once"), read("Tom"))
model.close()
[one_reader == expected, list(tasks) == expected]
"""
    assert python.run(code) == [True, True]


def test_arrays_are_shared_without_a_copy(python: Python) -> None:
    """Kernels take the addresses of NumPy's arrays: one memory, no copy either way."""
    code = """
import numpy as np
from halfbyte.core.backends.native import Kernels
x = np.arange(64, dtype=np.float32).reshape(1, 64)
y = np.zeros_like(x)
Kernels().call("add", z=y, x=x, y=x, n=1, p=1, d=64)
x[:] = y
y.tolist() == (2 * np.arange(64)).reshape(1, 64).tolist()
"""
    assert python.run(code) is True


def test_quantizing_in_the_browser_writes_the_same_bytes(python: Python, models: Path) -> None:
    python.run(FETCH)
    code = """
import hashlib
from halfbyte.quantize import quantize_file
quantize_file("/tmp/F32.gguf", "int4", "/tmp/here.gguf")
hashlib.sha256(Path("/tmp/here.gguf").read_bytes()).hexdigest()
"""
    import hashlib

    from halfbyte.quantize import quantize_file

    there = models / "there.gguf"
    quantize_file(models / "F32.gguf", "int4", there)
    result = python.run("from pathlib import Path\n" + code)
    assert result == hashlib.sha256(there.read_bytes()).hexdigest()


def test_the_wheel_of_the_page(wheel: Path) -> None:
    """It has the sources and kernels of the published wheel, without weights and local files."""
    with zipfile.ZipFile(wheel) as published, zipfile.ZipFile(io.BytesIO(make_wheel())) as output:
        suffixes = (".py", ".toml", ".wasm", "worker.js")
        expected = {n: published.read(n) for n in published.namelist() if n.endswith(suffixes)}
        assert {n: output.read(n) for n in output.namelist() if n.endswith(suffixes)} == expected


def test_the_text_part_of_the_wheel(wheel: Path) -> None:
    """Its files equal the wheel's, without docstrings and ONNX: a text page starts faster.

    Of the kernels, which have wheels of their own, a page loads one file.
    """
    parts = {"text": make_wheel(graphs=False)} | {table: make_kernels(table) for table in TABLES}
    sizes = {}
    with zipfile.ZipFile(wheel) as published:
        for part, content in parts.items():
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                names = [n for n in archive.namelist() if n.endswith((".py", ".wasm", ".js"))]
                for name in names:
                    whole = published.read(name)
                    expected = without_docstrings(whole) if name.endswith(".py") else whole
                    assert archive.read(name) == expected
                assert not [name for name in names if "/onnx" in name or "/session" in name]
                kernels = [name.partition("/")[2] for name in names if name.endswith(".wasm")]
                assert kernels == [file for table, file in TABLES.items() if table == part]
                sizes[part] = sum(i.compress_size for i in archive.infolist())
    assert sizes.pop("text") + max(sizes.values()) < 400_000


def test_wheel_is_small_and_has_no_dependencies(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        infos = [i for i in archive.infolist() if not i.filename.endswith("storyteller.bin")]
    assert sum(info.compress_size for info in infos) < 1_815_000
    names = {info.filename for info in infos}
    assert {f"halfbyte/{name}" for name in TABLES.values()} <= names
    assert not any(name.endswith((".so", ".dylib")) for name in names)
