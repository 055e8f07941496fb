"""Files that lie: one line that names the file, no traceback, no memory before checks.

`test_fuzz` mutates files of every format.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.formats.files import (
    VOCABULARY,
    header,
    model_metadata,
    pieces,
    tensor,
    tokenizer_bytes,
    tokenizer_metadata,
    weights,
    write_small,
    write_v0,
    write_v1,
    write_v2,
)

import halfbyte
from halfbyte.cli import main
from halfbyte.errors import HalfbyteError
from halfbyte.formats import MetadataValue
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.opening import open_model

MEMORY = 4 << 20  # the tests' files are smaller than 200 kB


def refused(path: Path) -> str:
    """The message that refuses a file, which took little memory."""
    tracemalloc.start()
    with pytest.raises(HalfbyteError) as caught:
        halfbyte.load(path, backend="numpy").close()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    message = str(caught.value)
    assert path.name in message or path.stem in message, message
    assert "\n" not in message
    assert peak < MEMORY
    return message


def outcome(action: Callable[[], object]) -> str:
    """The message of our own error; "" where there was none. Any other error is a failure."""
    try:
        action()
    except HalfbyteError as error:
        return str(error)
    return ""


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str) -> bytes:
    return u64(len(value)) + value.encode()


def start(tensors: int = 0, entries: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries)


def info(name: str, shape: list[int], kind: int = 0, offset: int = 0) -> bytes:
    dims = b"".join(u64(n) for n in shape)
    return text(name) + struct.pack("<I", len(shape)) + dims + struct.pack("<IQ", kind, offset)


ARCHITECTURE = text("general.architecture") + struct.pack("<I", 8) + text("llama")

HEADERS = {
    "empty": (b"", "is empty (0 bytes)"),
    "magic": (b"GGUX" + bytes(100), "not a model file that halfbyte reads"),
    "text": (b"Once upon a time, there was no model.\n" * 20, "not a model file"),
    "only magic": (b"GGUF", "truncated: 4 bytes expected"),
    "version 1": (start(version=1), "expected GGUF version 2 or 3, found 1"),
    "big-endian": (start(version=0x03000000), "2 or 3, found big-endian bytes"),
    "2^63 entries": (start(entries=2**63), "metadata entry 1 of 9223372036854775808: truncated"),
    "2^63 tensors": (start(tensors=2**63), "info of tensor 1 of 9223372036854775808: truncated"),
    "key of 4 GB": (start(entries=1) + u64(2**32) + b"abc", "truncated: 4294967296 bytes expected"),
    "string of 2^64 - 1": (
        start(entries=1) + text("k") + struct.pack("<I", 8) + u64(2**64 - 1),
        "metadata 'k': truncated",
    ),
    "array of 2^60": (
        start(entries=1) + text("k") + struct.pack("<IIQ", 9, 4, 2**60),
        "metadata 'k': truncated",
    ),
    "array of 2^61 strings": (
        start(entries=1) + text("k") + struct.pack("<IIQ", 9, 8, 2**61),
        "metadata 'k': truncated",
    ),
    "arrays in arrays": (
        start(entries=1) + text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 100,
        "nested more than 4 deep",
    ),
    "not UTF-8": (
        start(entries=1) + text("k") + struct.pack("<I", 8) + u64(2) + b"\xff\xfe",
        "is not UTF-8",
    ),
    "type 77": (start(entries=1) + text("k") + struct.pack("<I", 77), "unknown value type 77"),
    "a bool of 2": (
        start(entries=1) + text("k") + struct.pack("<I", 7) + b"\x02",
        "neither 0 nor 1",
    ),
    "key twice": (start(entries=2) + ARCHITECTURE * 2, "'general.architecture': appears twice"),
    "alignment 3": (
        start(entries=1) + text("general.alignment") + struct.pack("<II", 4, 3),
        "expected a uint32 power of two",
    ),
    "no dimensions": (start(1) + info("a", []), "tensor 'a': 0 dimensions, expected 1 to 4"),
    "dimension 0": (start(1) + info("a", [32, 0]), "has no elements"),
    "2^63 elements": (start(1) + info("a", [2**63]), "tensor 'a'"),
    "product of 2^252": (start(1) + info("a", [2**63] * 4), "tensor 'a'"),
    "unknown type": (start(1) + info("a", [256], 41), "found 41 (Q1_0)"),
    "half a block": (start(1) + info("a", [33], 2), "33 columns is not a multiple of Q4_0's"),
    "outside": (start(1) + info("a", [8], 0, 1 << 40), "the file has"),
    "odd offset": (start(1) + info("a", [1], 0, 7) + bytes(99), "is not a multiple of 32"),
    "twice": (start(2) + info("a", [1]) * 2 + bytes(99), "tensor 'a': appears twice"),
    "overlap": (
        start(2) + info("a", [16]) + info("b", [16], 0, 32) + bytes(200),
        "tensor 'b' begins at offset",
    ),
    "llama2.c, 2^31 wide": (struct.pack("<7i", 2**31 - 1, *[2**31 - 1] * 6) + bytes(99), "not a m"),
    "ak42, version 9": (b"24ka" + struct.pack("<i", 9) + bytes(300), "version 0, 1 or 2, found 9"),
    "ak42, short": (b"24ka" + struct.pack("<i", 1) + bytes(20), "truncated"),
    "ak42, zero wide": (b"24ka" + struct.pack("<i", 1) + bytes(300), "dim is 0"),
    "ak42, 3 heads": (
        (b"24ka" + struct.pack("<8i", 1, 32, 64, 2, 3, 1, 9, 16)).ljust(300, b"\0"),
        "dim 32 in 3 heads",
    ),
    "ak42, groups of 0": (
        (b"24ka" + struct.pack("<i", 2) + header() + b"\x01" + bytes(4)).ljust(300, b"\0"),
        "group_size is 0",
    ),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_lie(name: str, tmp_path: Path) -> None:
    data, expected = HEADERS[name]
    path = tmp_path / "lie.bin"
    path.write_bytes(data)
    assert expected in refused(path)


@pytest.mark.parametrize("make", [write_small, write_v0, write_v1, lambda p: write_v2(p, 32)])
def test_every_truncation_is_refused(tmp_path: Path, make: object) -> None:
    assert callable(make)
    (tmp_path / "tokenizer.bin").write_bytes(tokenizer_bytes())
    whole = make(tmp_path / "whole.bin").read_bytes()
    (tmp_path / "whole.bin").unlink()
    path = tmp_path / "part.bin"
    lengths = {*range(0, 400), *range(0, len(whole), 997), len(whole) - 1}
    for length in sorted(lengths):
        path.write_bytes(whole[:length])
        with pytest.raises(HalfbyteError, match="part"):
            open_model(path)


METADATA = {
    "general__architecture": (
        "t5",
        "architecture 't5': expected one of ['opt', 'mpt', 'gte'] or 92 others",
    ),
    "llama__block_count": ("2", "'llama.block_count': expected an integer, found str"),
    "llama__embedding_length": (np.uint32(2**31), "'llama.embedding_length': expected 1 to"),
    "llama__attention__head_count": (np.uint32(0), "'llama.attention.head_count': expected 1 to"),
    "llama__attention__head_count_kv": (np.uint32(3), "2 heads do not fit 3 key/value heads"),
    "llama__feed_forward_length": (
        np.uint32(63),
        "tensor 'blk.0.ffn_gate.weight': expected [63, 3",
    ),
    "llama__context_length": (np.float32(4), "'llama.context_length': expected an integer"),
    "llama__rope__dimension_count": (np.uint32(3), "expected an even number, found 3"),
    "llama__attention__layer_norm_rms_epsilon": (np.float32("nan"), "expected a positive number"),
    "llama__rope__freq_base": (
        np.float32(-1),
        "'llama.rope.freq_base': expected a positive number",
    ),
    "llama__expert_count": (np.uint32(8), "'llama.expert_used_count': expected an integer, found"),
    "llama__attention__value_length": (np.uint32(8), "value_length': expected 16, found 8"),
    "llama__logit_scale": (np.float32(2), "'llama.logit_scale': expected 1, found 2.0"),
    "llama__moe_latent_size": (np.uint32(2), "_size': halfbyte does not know this setting"),
    "llama__embedding_scale": (np.ones(2, np.float32) * 2, "_scale': expected 1, found [2. 2.]"),
    "llama__swin_norm": ([["a"], []], "swin_norm': expected False, found [['a'], []]"),
    "tokenizer__ggml__model": (
        "plamo2",
        "'gemma4' or 'rwkv', found 'plamo2'",
    ),
    "tokenizer__ggml__tokens": (
        pieces()[:-1],
        f"tokenizer has {VOCABULARY - 1} tokens, but tensor",
    ),
    "tokenizer__ggml__scores": (np.zeros(3, np.float32), f"3 entries, expected {VOCABULARY}"),
    "tokenizer__ggml__token_type": (["1"] * VOCABULARY, "expected an array of integers"),
    "tokenizer__ggml__bos_token_id": (np.uint32(VOCABULARY), "bos_token_id': expected 0 to"),
    "tokenizer__ggml__add_bos_token": ("yes", "expected a bool, found str"),
}


@pytest.mark.parametrize("key", METADATA)
def test_metadata_that_contradicts(key: str, tmp_path: Path) -> None:
    value, expected = METADATA[key]
    path = write_small(tmp_path / "model.gguf", **{key: value})  # type: ignore[arg-type]
    assert expected in refused(path)


def test_models_with_a_part_missing(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tensors = [tensor(n, v) for n, v in weights().items()]
    write_gguf(path, model_metadata(), [t for t in tensors if t.name != "blk.1.ffn_up.weight"])
    assert "tensor 'blk.1.ffn_up.weight': expected [64, 32], found nothing" in refused(path)
    write_gguf(path, model_metadata(), [t for t in tensors if t.name != "token_embd.weight"])
    assert "token_embd.weight" in refused(path)
    metadata: dict[str, MetadataValue] = dict(tokenizer_metadata())
    write_gguf(path, metadata, tensors)
    assert "'general.architecture': expected a string, found nothing" in refused(path)


def test_tensors_without_a_use_here(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    norm = tensor("blk.0.attn_q_norm.weight", np.ones(32, np.float32))
    write_gguf(path, model_metadata(), [*(tensor(n, v) for n, v in weights().items()), norm])
    assert "tensor 'blk.0.attn_q_norm.weight': architecture 'llama' does not use it" in refused(
        path
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_weights_that_are_not_finite(
    value: str, backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are reported when they are used: a mapped file is not read before."""
    path, arrays = tmp_path / "model.gguf", weights()
    arrays["blk.1.ffn_up.weight"][3, 5] = float(value)
    write_gguf(path, model_metadata(), [tensor(n, v) for n, v in arrays.items()])
    assert main(["run", str(path), "abc", "--backend", backend]) == 2
    out, err = capsys.readouterr()
    assert out == "abc\n"  # the prompt
    assert err == (
        f"error: {path}: tensor 'blk.1.ffn_up.weight': expected finite weights, found {value} at "
        "row 3, column 5\n"
    )


def test_memory_is_not_taken_before_it_is_checked(tmp_path: Path) -> None:
    """With 700 MB of address space, a context of 2^24 tokens is refused with the numbers."""
    path = write_small(tmp_path / "model.gguf", llama__context_length=np.uint32(1 << 24))
    script = (
        "import resource, sys, halfbyte.cli;"
        "resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20));"
        "sys.exit(halfbyte.cli.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", script, "run", str(path), "-n", "2", "-t", "1"]
    environment = {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr  # 4096 tokens unless more are asked for
    done = subprocess.run(
        [*command, "--context", str(1 << 24)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert (
        "model.gguf: it needs more memory than there is: beside the weights constant" in done.stderr
    )
    assert "constant 1074 MB, cache 4295 MB;" in done.stderr


@pytest.mark.parametrize("command", ["run", "info", "bench"])
def test_the_command_line_says_it_in_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF")
    assert main([command, str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"error: {path}: header: truncated: 4 bytes expected at offset 4, 0 found\n"
