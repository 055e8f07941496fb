"""The WebAssembly files themselves; their kernels are tested as the backends wasm-*."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path
from types import ModuleType

import pytest
import wasmtime
from tests.support import wasm
from tests.support.encoders import assert_encodes
from tests.support.tools import load_tool

from halfbyte.core.backends import side_module
from halfbyte.core.backends.libraries import library

# Of the quantizer, and of loading
STEPS = re.compile("encode_(extremes|slopes|lines|integers|pack|q4_1|q5_.)|convert_grids")
# Kernels of graphs only
GRAPHS = re.compile(
    "matmul_panels|recurrent_layer|matmul_batched|pack_panels|pack_batched|attention|reduce_|"
    "conv2d|.*pool|resize|grid_sample|.*quantized|.*quantize_linear|quantize_tensor|tensor_range"
)


@pytest.fixture(scope="module")
def tool(repository: Path) -> ModuleType:
    return load_tool(repository, "build_wasm")


@pytest.mark.parametrize("isa", wasm.FILES)
def test_files_import_five_names_at_most(tool: ModuleType, isa: str) -> None:
    data = (wasm.folder() / wasm.FILES[isa]).read_bytes()
    assert tool.imports(data) <= tool.ALLOWED_IMPORTS
    assert "memory" in tool.imports(data)
    assert len(data) <= tool.MAX_BYTES
    assert len(zlib.compress(data, 9)) <= 90_500
    assert data[8] == 0  # the first section is custom:
    assert data[10:19] == b"\x08dylink.0"[:9]  # it makes the file a side module


def test_the_files_are_small() -> None:
    """All three together, as they are in a wheel."""
    files = [(wasm.folder() / name).read_bytes() for name in wasm.FILES.values()]
    assert sum(len(zlib.compress(data, 9)) for data in files) <= 235_000


@pytest.mark.parametrize("isa", wasm.FILES)
def test_vectors_are_not_copied_in_memory(isa: str) -> None:
    """Engines run the instruction as a call of C: 195 of them made activations half as fast."""
    data = (wasm.folder() / wasm.FILES[isa]).read_bytes()
    assert 0 < data.count(b"\xfc\x0a\x00\x00") < 40  # memory.copy


def test_import_reader_sees_functions(tool: ModuleType) -> None:
    """A module written by hand that imports a function, a table, a memory and a global."""
    names = [b"f", b"t", b"m", b"g"]
    kinds = [b"\x00\x00", b"\x01\x70\x01\x01\x02", b"\x02\x00\x01", b"\x03\x7f\x00"]
    entries = b"".join(
        b"\x03env" + bytes([len(n)]) + n + k for n, k in zip(names, kinds, strict=True)
    )
    section = b"\x04" + entries
    data = b"\0asm" + struct.pack("<I", 1) + b"\x02" + bytes([len(section)]) + section
    assert tool.imports(data) == {"f", "t", "m", "g"}
    assert tool.imports(data[:8]) == set()
    with pytest.raises(ValueError, match="not a WebAssembly module"):
        tool.imports(b"\x7fELF" + bytes(8))


@pytest.mark.parametrize("isa", wasm.FILES)
def test_the_same_file_runs_in_shared_memory(isa: str) -> None:
    """Only the type of its memory is changed, which engines check."""
    data = (wasm.folder() / wasm.FILES[isa]).read_bytes()
    shared = side_module.with_shared_memory(data, 65536)
    config = wasmtime.Config()
    config.wasm_relaxed_simd = config.wasm_threads = config.wasm_memory64 = True
    engine = wasmtime.Engine(config)
    before, after = wasmtime.Module(engine, data), wasmtime.Module(engine, shared)
    kinds = [[str(i.type) for i in m.imports if i.name != "memory"] for m in (before, after)]
    assert len(kinds[0]) == len(kinds[1]) == len(side_module.imports(data)) - 1
    [memory] = [i.type for i in after.imports if i.name == "memory"]
    assert isinstance(memory, wasmtime.MemoryType)
    assert memory.limits.max == 65536
    assert len(shared) < len(data) + 8
    assert side_module.needs(shared) == side_module.needs(data)


def test_side_modules_are_recognized() -> None:
    with pytest.raises(ValueError, match=r"no section dylink.0"):
        side_module.needs(b"\0asm\1\0\0\0")


@pytest.mark.parametrize("number", [0, 127, 128, 65536, 2**32 - 1])
def test_numbers_of_modules(number: int) -> None:
    assert side_module.leb(b"x" + side_module.as_leb(number), 1)[0] == number


@pytest.mark.parametrize("isa", wasm.FILES)
def test_kernels_of_each_file(isa: str) -> None:
    """All except steps of the quantizer; for models beyond 4 GB, only those of language models."""
    kernels = wasm.library(isa, 1 << 20)
    missing = [name for name in library().kernels if name not in kernels.kernels]
    steps = [name for name in missing if STEPS.fullmatch(name)]
    missing = [name for name in missing if name not in steps]
    assert len(steps) == 9
    fields = {name: kernel.fields for name, kernel in kernels.kernels.items()}
    assert fields.items() <= {n: k.fields for n, k in library().kernels.items()}.items()
    assert bool(missing) == (isa == "relaxed64")
    assert [name for name in missing if not GRAPHS.match(name)] == []
    assert kernels.instruction_sets == [isa]


@pytest.mark.parametrize("isa", wasm.FILES)
def test_the_engine_decides_about_products(isa: str) -> None:
    """SIMD128 has no byte product; only an engine knows whether it emulates the relaxed one."""
    capabilities = wasm.library(isa, 1 << 20).capabilities(isa)
    assert capabilities.keys() == library().capabilities(library().instruction_sets[0]).keys()
    assert capabilities["REGISTER_LANES"] == 4
    assert capabilities["BYTE_PRODUCTS"] == (isa != "simd128")
    assert capabilities["UNPACKED_FASTER"] in ((1,) if isa == "simd128" else (0, 1))


@pytest.mark.parametrize("isa", wasm.FILES)
@pytest.mark.parametrize("name", ["F16", "BF16", "Q8_0", "Q4_0"])
def test_encoders_write_the_same_bytes(isa: str, name: str) -> None:
    assert_encodes(wasm.library(isa, 1 << 20), isa, name)
