"""Quantized and optimized models as other tools write them, beside ONNX Runtime.

    python -m benches.onnx.others [-m qdq,optimizer] [-r 5] [--json NEW.json]

Each row is a tool and the form that it writes, made from models of the zoo or from one that is
built here. The difference is the largest one to ONNX Runtime's outputs, by the largest number of an
output; NumPy's is the share of the time that operators without a kernel take.
"""

from __future__ import annotations

import argparse
import importlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benches.arguments import Some
from benches.figures import Series, add_json_option, markdown, pytest_json, write_json
from benches.onnx import zoo, zoo_files
from benches.prepare import say
from benches.turns import Contender, take_turns
from benches.yardstick import yardstick
from onnxruntime import quantization

import onnx
from onnx import TensorProto, helper, numpy_helper

Feeds = dict[str, Any]
TRANSFORMER, CONVOLUTIONS = "bert-sdpa", "resnet18"
HEADER = ["form", "tool", "operators", "difference", "times as fast", "NumPy"]
SHOWN = 4  # operators


@dataclass(frozen=True)
class Form:
    """What a tool writes.

    Attributes
    ----------
    source
        A model of the zoo, or "" for `fused`.
    make
        Writes the second file from the first.
    """

    tool: str
    source: str
    make: Callable[[Path, Path, Feeds], None]


@dataclass
class Row:
    """A form, measured; `error` says why it was not."""

    form: str
    tool: str
    operators: str = ""
    difference: float = float("nan")
    ratio: float = float("nan")
    numpy: float = float("nan")
    error: str = ""


# ---- what the tools write ------------------------------------------------------------------------


class _Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
    """The feeds, once."""

    def __init__(self, feeds: Feeds) -> None:
        self._left = [feeds]

    def get_next(self) -> Feeds | None:
        return self._left.pop() if self._left else None


def _static(**options: Any) -> Callable[[Path, Path, Feeds], None]:
    def make(source: Path, target: Path, feeds: Feeds) -> None:
        ready = target.with_suffix(".ready.onnx")
        quantization.shape_inference.quant_pre_process(source, ready)
        quantization.quantize_static(ready, target, _Reader(feeds), **options)
        ready.unlink()

    return make


def _dynamic(source: Path, target: Path, feeds: Feeds) -> None:
    quantization.quantize_dynamic(source, target, per_channel=True)


def _fused_dynamic(source: Path, target: Path, feeds: Feeds) -> None:
    extra = {"DefaultTensorType": TensorProto.FLOAT}
    quantization.quantize_dynamic(source, target, extra_options=extra)


def _optimizer(kind: str, *, is_float16: bool = False) -> Callable[[Path, Path, Feeds], None]:
    def make(source: Path, target: Path, feeds: Feeds) -> None:
        from onnxruntime.transformers.optimizer import optimize_model

        model = optimize_model(str(source), model_type=kind, opt_level=0)
        if is_float16:
            model.convert_float_to_float16(keep_io_types=True)
        model.save_model_to_file(str(target))

    return make


def _optimized(source: Path, target: Path, feeds: Feeds) -> None:
    """As a session of ONNX Runtime saves it."""
    runtime = importlib.import_module("onnxruntime")
    options = zoo._options(runtime, 1)
    options.optimized_model_filepath = str(target)
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    runtime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def _optimized_dynamic(source: Path, target: Path, feeds: Feeds) -> None:
    between = target.with_suffix(".dynamic.onnx")
    _dynamic(source, between, feeds)
    _optimized(between, target, feeds)
    between.unlink()


def _n_bits(**options: Any) -> Callable[[Path, Path, Feeds], None]:
    def make(source: Path, target: Path, feeds: Feeds) -> None:
        module = importlib.import_module("onnxruntime.quantization.matmul_nbits_quantizer")
        quantizer = module.MatMulNBitsQuantizer(onnx.load(source), **options)
        quantizer.process()
        quantizer.model.save_model_to_file(str(target), use_external_data_format=False)

    return make


def _halves(kind: int) -> Callable[[Path, Path, Feeds], None]:
    """Weights in halves, with a Cast before each reader, as exporters of such models write them."""

    def make(source: Path, target: Path, feeds: Feeds) -> None:
        model = onnx.load(source)
        casts = []
        for tensor in model.graph.initializer:
            if tensor.data_type == TensorProto.FLOAT and len(tensor.dims) > 1:
                numbers, name = numpy_helper.to_array(tensor), tensor.name
                half = helper.tensor_dtype_to_np_dtype(kind)
                tensor.CopyFrom(numpy_helper.from_array(numbers.astype(half), f"{name}.half"))
                casts.append(helper.make_node("Cast", [f"{name}.half"], [name], to=1))
        nodes = [*casts, *model.graph.node]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        onnx.save(model, target)

    return make


FORMS: Mapping[str, Form] = {
    "qdq": Form("quantize_static", CONVOLUTIONS, _static(per_channel=True)),
    "qdq-int8": Form("quantize_static", CONVOLUTIONS, _static(
        activation_type=quantization.QuantType.QInt8)),
    "qdq-int16": Form("quantize_static", CONVOLUTIONS, _static(
        activation_type=quantization.QuantType.QUInt16, extra_options={
            "UseQDQContribOps": True})),
    "qoperator": Form("quantize_static", CONVOLUTIONS, _static(
        quant_format=quantization.QuantFormat.QOperator, per_channel=True)),
    "qdq-transformer": Form("quantize_static", TRANSFORMER, _static()),
    "qoperator-transformer": Form("quantize_static", TRANSFORMER, _static(
        op_types_to_quantize=["MatMul"],
        quant_format=quantization.QuantFormat.QOperator)),
    "dynamic": Form("quantize_dynamic", TRANSFORMER, _dynamic),
    "dynamic-optimized": Form("a session", TRANSFORMER, _optimized_dynamic),
    "dynamic-convolutions": Form("quantize_dynamic", CONVOLUTIONS, _dynamic),
    "dynamic-lstm": Form("quantize_dynamic", "lstm", _fused_dynamic),
    "int4": Form("MatMulNBitsQuantizer", TRANSFORMER, _n_bits(block_size=32, accuracy_level=4)),
    "int4-zeros": Form("MatMulNBitsQuantizer", TRANSFORMER, _n_bits(
        block_size=128, is_symmetric=False)),
    "optimizer-bert": Form("transformers.optimizer", TRANSFORMER, _optimizer("bert")),
    "optimizer-t5": Form("transformers.optimizer", "t5-encoder", _optimizer("t5")),
    "optimizer-clip": Form("transformers.optimizer", "clip-text", _optimizer("clip")),
    "optimizer-float16": Form("transformers.optimizer", TRANSFORMER, _optimizer(
        "bert", is_float16=True)),
    "session-optimized": Form("a session", TRANSFORMER, _optimized),
    "session-convolutions": Form("a session", CONVOLUTIONS, _optimized),
    "fused": Form("transformers.optimizer", "", lambda *paths: fused(paths[1])),
    "fused-dynamic": Form("quantize_dynamic", "", _fused_dynamic),
    "float16-weights": Form("exporters", TRANSFORMER, _halves(TensorProto.FLOAT16)),
    "bfloat16-weights": Form("exporters", TRANSFORMER, _halves(TensorProto.BFLOAT16)),
}  # fmt: skip


def fused(path: Path, layers: int = 2, size: int = 256, heads: int = 4) -> None:
    """An encoder of ONNX Runtime's fused operators, as its optimizer writes older exports."""
    rng, nodes = np.random.default_rng(0), []
    tensors: dict[str, Any] = {}

    def constant(name: str, *shape: int, spread: float = 0.05) -> str:
        tensors[name] = (spread * rng.standard_normal(shape)).astype(np.float32)
        return name

    def norm(name: str) -> list[str]:
        tensors[f"{name}.gain"] = np.ones(size, np.float32)
        return [f"{name}.gain", constant(f"{name}.bias", size)]

    def add(kind: str, inputs: list[str], *outputs: str, **attributes: Any) -> str:
        domain = "" if kind == "MatMul" else "com.microsoft"
        nodes.append(helper.make_node(kind, inputs, list(outputs), domain=domain, **attributes))
        return outputs[0]

    tables = [constant(name, rows, size) for name, rows in (("w", 1000), ("p", 64), ("s", 2))]
    inputs = ["ids", "types", *tables, *norm("embed"), "mask"]
    x = add("EmbedLayerNormalization", inputs, "x", "lengths", epsilon=1e-12)
    for i in range(layers):
        name = f"layer{i}"
        qkv = [constant(f"{name}.qkv", size, 3 * size), constant(f"{name}.qkv_bias", 3 * size)]
        y = add("Attention", [x, *qkv, "lengths"], f"{name}.attention", num_heads=heads)
        y = add("MatMul", [y, constant(f"{name}.out", size, size)], f"{name}.projected")
        skip = [y, x, *norm(f"{name}.norm"), constant(f"{name}.out_bias", size)]
        x = add("SkipLayerNormalization", skip, f"{name}.added", epsilon=1e-12)
        y = add("MatMul", [x, constant(f"{name}.up", size, 4 * size)], f"{name}.wide")
        y = add("BiasGelu", [y, constant(f"{name}.up_bias", 4 * size)], f"{name}.active")
        y = add("MatMul", [y, constant(f"{name}.down", 4 * size, size)], f"{name}.narrow")
        skip = [y, x, *norm(f"{name}.norm2"), constant(f"{name}.down_bias", size)]
        x = add("SkipLayerNormalization", skip, f"{name}.result", epsilon=1e-12)
    kinds = dict.fromkeys(("ids", "types", "mask"), TensorProto.INT32)
    graph = helper.make_graph(
        nodes, "fused",
        [helper.make_tensor_value_info(name, kind, ["n", "t"]) for name, kind in kinds.items()],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["n", "t", size])],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def _fused_feeds() -> Feeds:
    rng, shape = np.random.default_rng(1), (1, 64)
    return {
        "ids": rng.integers(0, 1000, shape).astype(np.int32),
        "types": np.zeros(shape, np.int32), "mask": np.ones(shape, np.int32),
    }  # fmt: skip


# ---- measuring -----------------------------------------------------------------------------------


def file(name: str) -> tuple[Path, Feeds]:
    """A form's file, which the first call writes, and inputs."""
    form, folder = FORMS[name], zoo_files.folder()
    if form.source:
        source = zoo_files.file(form.source, "fp32")
        feeds = zoo_files.feeds(form.source, _types(source))
    else:
        source, feeds = folder / "other-source.onnx", _fused_feeds()
        fused(source)
    path = folder / f"other-{name}.onnx"
    if not path.exists():
        say(f"{path.name} ...")
        form.make(source, path, feeds)
    return path, feeds


def _types(path: Path) -> dict[str, str]:
    module = importlib.import_module("onnxruntime")
    session = module.InferenceSession(str(path), zoo._options(module, 1))
    return {i.name: i.type for i in session.get_inputs()}


def measured(name: str, rounds: int) -> Row:
    """A form in both engines."""
    row = Row(name, FORMS[name].tool)
    try:
        path, feeds = file(name)
        row.operators = _operators(path)
        sessions, outputs = {}, {}
        for engine in zoo.ENGINES:
            module = importlib.import_module(engine)
            sessions[engine] = module.InferenceSession(
                str(path), zoo._options(module, 1), providers=["CPUExecutionProvider"]
            )
            outputs[engine] = sessions[engine].run(None, feeds)
        row.difference = zoo._difference(*(outputs[engine] for engine in zoo.ENGINES))
        row.numpy = zoo._share_of_numpy(str(path), 1, feeds)
        series = {engine: Series(name, engine, "run") for engine in sessions}
        contenders = [
            Contender(series[engine], lambda s=session: s.run(None, feeds))
            for engine, session in sessions.items()
        ]
        take_turns(contenders, yardstick("clock", 1), rounds)
        row.ratio = series["halfbyte"].times_as_fast_as(series["onnxruntime"])
    except Exception as error:
        row.error = " ".join(f"{type(error).__name__}: {error}".split())
    say(" ".join(_cells(row)))
    return row


def _operators(path: Path) -> str:
    """Those that say what form it is, the most frequent first."""
    nodes = onnx.load(path, load_external_data=False).graph.node
    telling = ("Quant", "Integer", "QLinear", "Cast")
    names = [n.op_type for n in nodes if n.domain or any(part in n.op_type for part in telling)]
    counts = sorted({name: names.count(name) for name in names}.items(), key=lambda item: -item[1])
    return ", ".join(name for name, _ in counts[:SHOWN])


def _cells(row: Row) -> list[str]:
    if row.error:
        return [row.form, row.tool, row.operators, row.error[:60].replace("|", "/"), "-", "-"]
    figures = [f"{row.difference:.0e}", f"{row.ratio:.2f}", f"{row.numpy:.0%}"]
    return [row.form, row.tool, row.operators, *figures]


def main() -> None:
    """Measure, print, write."""
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(
        prog="python -m benches.onnx.others", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("-m", "--forms", type=Some(tuple(FORMS)), default=list(FORMS), help="(default: all)")
    add("-r", "--rounds", type=int, default=5, help="(default 5)")
    add_json_option(parser)
    options = parser.parse_args()
    rows = [measured(name, options.rounds) for name in options.forms]
    print(markdown(HEADER, [_cells(row) for row in rows], left=3))
    content = pytest_json([], "benches/onnx/others", rows=[asdict(row) for row in rows])
    write_json(options.json, content)


if __name__ == "__main__":
    main()
