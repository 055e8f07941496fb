"""Small ONNX models, pictures and labels for the page, and a page without an encoder."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from tests.text.encoders import encoders
from tests.text.tokenizers.hugging_face import word_piece
from tools.onnx_models import make

from halfbyte.quantize import quantize_file
from halfbyte.web.site import ENCODER, Site

COLOURS = {"red": (230, 20, 10), "green": (10, 210, 60), "blue": (0, 40, 250)}
SIDE = 12  # pixels of the classifier's pictures


def png(rows: np.ndarray) -> bytes:  # type: ignore[type-arg]
    """A picture [height, width, 3] as a file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    height, width, _ = rows.shape
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    lines = b"".join(b"\0" + row.tobytes() for row in rows.astype(np.uint8))
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def layers(path: Path) -> None:
    """Write a graph of 16 MB, for any number of rows."""
    random = np.random.default_rng(0)
    weights = {
        name: random.standard_normal(shape, np.float32)
        for name, shape in {"w": (512, 4096), "v": (4096, 512), "b": (4096,)}.items()
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["positive"]),
        helper.make_node("MatMul", ["positive", "v"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    proto = helper.make_graph(
        nodes, "layers", [value("x", TensorProto.FLOAT, ["n", 512])],
        [value("y", TensorProto.FLOAT, ["n", 512])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())


def classifier(last: bool = False, classes: int = 3) -> bytes:
    """logits [1, classes] of a picture's middle: twenty times how red, green and blue it is."""
    order = [0, 3, 1, 2] if last else [0, 1, 2, 3]
    dims: list[int | str] = [1, SIDE, SIDE, 3] if last else [1, 3, SIDE, SIDE]
    nodes = [
        helper.make_node("Transpose", ["image"], ["first"], perm=order),
        helper.make_node("GlobalAveragePool", ["first"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
    ]  # fmt: skip
    weights = numpy_helper.from_array(np.eye(3, classes, dtype=np.float32) * 20, "weights")
    graph = helper.make_graph(
        nodes, "colours", [helper.make_tensor_value_info("image", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, classes])], [weights],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def listener() -> bytes:
    """scores [1, 2] of a sound: 10 times its largest sample, and 1."""
    nodes = [
        helper.make_node("ReduceMax", ["waveform"], ["top"], axes=[1], keepdims=1),
        helper.make_node("Mul", ["top", "ten"], ["loud"]),
        helper.make_node("Concat", ["loud", "one"], ["scores"], axis=1),
    ]
    constants = [
        numpy_helper.from_array(np.array([[value]], np.float32), name)
        for name, value in (("ten", 10), ("one", 1))
    ]
    graph = helper.make_graph(
        nodes, "loud",
        [helper.make_tensor_value_info("waveform", TensorProto.FLOAT, [1, "samples"])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 2])], constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def write_files(folder: Path) -> None:
    """A classifier, its labels, pictures; small random encoders, and the tokenizer of one."""
    (folder / "colours.onnx").write_bytes(classifier())
    (folder / "last.onnx").write_bytes(classifier(last=True))
    (folder / "colours.txt").write_text("\n".join(COLOURS), encoding="utf-8")
    (folder / "labels.txt").write_text("loud\nsoft", encoding="utf-8")
    for name, colour in COLOURS.items():  # wide, with margins that are cropped
        rows = np.full((40, 100, 3), 128, np.uint8)
        rows[:, 30:70] = colour
        (folder / f"{name}.png").write_bytes(png(rows))
    pieces = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    letters = [mark + chr(code) for code in range(33, 127) for mark in ("", "##")]
    words = word_piece({piece: i for i, piece in enumerate([*pieces, *letters])})
    (folder / "tokenizer.json").write_bytes(words.to_str().encode())
    model = make("bert-small", pooled=True)
    (folder / "small.onnx").write_bytes(model.SerializeToString())
    quantize_file(encoders.write(folder / "nomic", "nomic_bert"), "int8", folder / "small.gguf")


def with_encoder(site: Site, encoder: dict[str, Path]) -> Site:
    """The site with this encoder (model and tokenizer), or without one."""
    result = {n: c for n, c in site.files.items() if n.removeprefix("models/") not in ENCODER}
    settings = result["site.json"]
    assert isinstance(settings, bytes)
    added = {f"models/{path.name}": path for path in encoder.values()}
    names = dict(zip(encoder, added, strict=True))
    told = json.dumps({**json.loads(settings), "encoder": names}).encode()
    return replace(site, files={**result, **added, "site.json": told})
