"""llama.cpp with every type of weights: its files run here, ours there; our errors are no larger.

Random models 256 wide, so that K-quants have whole blocks.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import xllamacpp
from tests.judges.test_llama_cpp import divergence, log_softmax
from tests.judges.test_llama_cpp_architectures import log_probabilities
from tests.support.sampled import sampled
from tests.support.tools import load_tool

import halfbyte
from halfbyte.quantize import quantize_file
from halfbyte.quantize.encode import Codec
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.opening import open_model
from halfbyte.weights import FORMATS, Tensor

F32 = npt.NDArray[np.float32]
IDS = [1, *np.random.default_rng(5).integers(300, 512, 47).tolist()]
LENGTHS = list(range(1, 49, 3))
QUANTIZED = [name for name, f in FORMATS.items() if f.block > 1]
WRITTEN = [name for name in QUANTIZED if FORMATS[name].presets]
READ = [name for name in QUANTIZED if name not in WRITTEN]
PRESETS = [*WRITTEN, "Q4_K_M", "Q5_K_M"]

SLOW = ("IQ2_XS", "IQ2_S", "IQ1_S", "IQ1_M")  # llama.cpp's encoders take tens of seconds

# Mean KL divergence in nats. llama.cpp rounds activations to int8 in blocks of 256 for K-quants,
# in blocks of 32 with F16 scales for the others.
BOUND = 1.5e-3


@cache
def _library() -> Any:
    folder = Path(xllamacpp.__file__).parent
    library = ctypes.CDLL(str(next(folder.glob("xllamacpp*.so"))))
    size, pointer = ctypes.c_int64, ctypes.c_void_p
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, pointer, pointer, *[size] * 3, pointer]
    return library


def encoded_by_ggml(x: F32, name: str) -> npt.NDArray[np.uint8]:
    """Rows encoded by llama.cpp's quantizer; types that need it have an importance of 1."""
    kind = gguf.GGMLQuantizationType[name]
    rows = np.empty((len(x), FORMATS[name].row_bytes(x.shape[1])), np.uint8)
    importance = np.ones(x.shape[1], np.float32)
    needed = importance.ctypes.data if name in ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS") else None
    written = _library().ggml_quantize_chunk(
        int(kind), x.ctypes.data, rows.ctypes.data, 0, *x.shape, needed
    )
    assert written == rows.nbytes
    return rows


def data(rows: int = 96) -> dict[str, F32]:
    """Weights like those of models: normal, with long tails, of unlike rows and columns."""
    random = np.random.default_rng(0)
    normal = random.standard_normal((rows, 1024)) / 32
    unlike = np.exp(random.standard_normal((rows, 1)) + random.standard_normal((1, 1024)) / 2)
    cases = {
        "normal": normal,
        "long tails": random.standard_t(4, (rows, 1024)) / 32,
        "off centre": normal + 0.02,
        "unlike sizes": normal * unlike,
    }
    return {name: values.astype(np.float32) for name, values in cases.items()}


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        *((name, 96) for name in WRITTEN),
        *((name, 4) for name in READ if name not in SLOW),
        *(pytest.param(name, 96, marks=pytest.mark.long) for name in READ),
    ],
)
def test_what_ggml_encodes_is_decoded_as_gguf_does(name: str, rows: int) -> None:
    for label, x in data(rows).items():
        encoded = encoded_by_ggml(x, name)
        expected = gguf.quants.dequantize(encoded, gguf.GGMLQuantizationType[name])
        np.testing.assert_array_equal(FORMATS[name].decode(encoded), expected, label)
        decoded = Codec().decode(FORMATS[name], encoded, x.shape[1])
        np.testing.assert_array_equal(decoded, expected, label)


@pytest.mark.parametrize("name", WRITTEN)
def test_errors_are_at_most_ggml_s(name: str) -> None:
    format_, codec = FORMATS[name], Codec()
    for label, x in data().items():
        ours, errors = codec.search(format_, x, np.ones(x.shape[1], np.float32))
        theirs = encoded_by_ggml(x, name)
        error, bound = (
            np.square(format_.decode(rows) - x, dtype=np.float64).sum() for rows in (ours, theirs)
        )
        assert error <= bound, label
        assert errors[:, 1].sum() == pytest.approx(error, rel=1e-4)


@pytest.fixture(scope="module")
def random_model(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tool = load_tool(repository, "make_model")
    path: Path = tmp_path_factory.mktemp("types") / "f32.gguf"
    tool.make_model(path, "tiny-256", "F32")
    return path


def logits(path: Path, weights: str = "auto") -> F32:
    """Our logits after texts of LENGTHS."""
    with halfbyte.load(path, cache="f32", weights=weights) as model:
        rows: F32 = model.logits(IDS)[np.array(LENGTHS) - 1]
        return rows


@pytest.mark.parametrize("kind", sampled(PRESETS, 3))
def test_distributions_agree(kind: str, random_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    quantize_file(random_model, kind, path)
    theirs = log_probabilities(path, IDS, LENGTHS, 512)
    assert divergence(theirs, log_softmax(logits(path))) <= BOUND


@pytest.mark.parametrize("kind", ["Q4_K_M", "Q5_1"])
def test_files_of_llama_cpp_s_encoder_run(kind: str, random_model: Path, tmp_path: Path) -> None:
    """Files with the types of our preset and the bytes of its encoders."""
    path, theirs_path = tmp_path / "m.gguf", tmp_path / "theirs.gguf"
    quantize_file(random_model, kind, path)
    write_encoded(theirs_path, random_model, path)
    theirs = log_probabilities(theirs_path, IDS, LENGTHS, 512)
    assert divergence(theirs, log_softmax(logits(theirs_path))) <= BOUND
    assert divergence(theirs, log_softmax(logits(path))) > 4 * BOUND  # encoded by us


def write_encoded(path: Path, source: Path, like: Path, name: str = "") -> None:
    """A model with the bytes of llama.cpp's encoders, in the types of another, or in one type."""
    matrices, file, tensors = open_model(source).tensors, open_model(like), []
    for tensor in file.tensors.values():
        if tensor.format.block > 1:
            kind = FORMATS[name or tensor.format.name]
            rows = encoded_by_ggml(matrices[tensor.name].decode(), kind.name)
            tensor = Tensor(tensor.name, kind, tensor.shape, rows.reshape(-1))
        tensors.append(tensor)
    write_gguf(path, file.metadata, tensors)


@pytest.fixture(scope="module")
def plain_q4_k(random_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("types") / "like.gguf"
    quantize_file(random_model, "Q4_K", path)
    return path


@pytest.mark.parametrize("name", READ)
def test_types_that_are_only_read(name: str, repository: Path, tmp_path: Path) -> None:
    """Random blocks, which take no encoder."""
    path = tmp_path / "m.gguf"
    load_tool(repository, "make_model").make_model(path, "tiny-256", name, blocks=True)
    theirs = log_probabilities(path, IDS, LENGTHS, 512)
    assert divergence(theirs, log_softmax(logits(path))) <= BOUND


@pytest.mark.long
@pytest.mark.parametrize("name", READ)
def test_types_that_llama_cpp_encodes(
    name: str, random_model: Path, plain_q4_k: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    write_encoded(path, random_model, plain_q4_k, name)
    theirs = log_probabilities(path, IDS, LENGTHS, 512)
    ours = logits(path)
    assert divergence(theirs, log_softmax(ours)) <= BOUND
    if name in ("IQ4_XS", "IQ2_XS"):
        np.testing.assert_array_equal(logits(path, weights="mapped"), ours)
