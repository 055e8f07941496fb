"""Products of dynamically quantized activations run in kernels, with the results of their nodes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from tests.onnx.convert import model_from
from tests.onnx.exact_sums import EXACT
from tests.onnx.graphs import (
    Array,
    Net,
    assert_close,
    by_definition,
    by_onnxruntime,
    by_programs,
    outputs_of,
    runner,
)
from tests.onnx.test_fusion_quantized import dynamic
from tests.onnx.test_model_builders import text
from tools.onnx_models import make, save

from halfbyte.onnx.fusion.ranks import ranks
from halfbyte.onnx.prepare import prepare
from halfbyte.quantize.onnx import Options, quantize_onnx

SPECIAL = {"zeros": 0.0, "constant": -0.3, "nan": np.nan, "infinite": np.inf, "tiny": 1e-42}


def unfused(proto: Any, feeds: dict[str, Array], host: bool = False) -> None:
    """Programs have the results of the unfused definitions, in kernels unless `host`."""
    with np.errstate(all="ignore"):
        wanted = by_definition(proto, feeds)
    run = runner(proto)
    for ours, theirs in zip(outputs_of(run, feeds), wanted, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-6)
    (program,) = run.programs()
    assert any(i.operator.host for i in program.instructions) == host
    run.close()


@pytest.mark.parametrize("shape", [(1, 6), (5, 6), (2, 3, 6), (1, 1, 1, 6)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("zero", ["", "center", "one", "columns"])
@pytest.mark.parametrize("special", ["", *SPECIAL])
def test_dynamic_product_in_kernels(
    shape: tuple[int, ...], dtype: Any, zero: str, special: str
) -> None:
    g = Net(17)
    x = g.numbers(*shape)
    if special in ("zeros", "constant"):
        x = np.full_like(x, SPECIAL[special])
    elif special:
        x = x * np.float32(0)
        x.reshape(-1)[-2] = SPECIAL[special]
    w = g.array(np.round(g.numbers(6, 7) * 40 + (100 if dtype == np.uint8 else 0)).astype(dtype))
    center = 128 if dtype == np.uint8 else 0
    zeros = {"center": np.full(7, center), "one": 3, "columns": np.arange(7) * 17}
    offset = g.array(zeros[zero], dtype) if zero else ""
    y = dynamic(g, g.feed(x), w, g.array(np.arange(7) * 0.01 + 0.01, np.float32), offset)
    unfused(g.proto(g.node("Add", g.w(7), y)), g.feeds)


@pytest.mark.parametrize("activation", ["", "Gelu", "tanh", "Relu"])
@pytest.mark.parametrize("residual", [False, True])
def test_dynamic_product_with_its_consumers(activation: str, residual: bool) -> None:
    """Two products of the same activations, with bias, sum or activation, are two instructions."""
    g = Net(20)
    x = g.x(5, 6)
    results = []
    for _ in range(2):
        w = g.array(np.round(g.numbers(6, 6) * 40).astype(np.int8))
        y = g.node("Add", dynamic(g, x, w, g.array(0.01, np.float32), ""), g.w(6))
        if activation:
            tanh = {"approximate": "tanh"} if activation == "tanh" else {}
            y = g.node("Gelu" if tanh else activation, y, **tanh)
        results.append(g.node("Add", x, y) if residual else y)
    proto = g.proto(*results)
    unfused(proto, g.feeds)
    run = runner(proto)
    outputs_of(run, g.feeds)
    names = Counter(i.operator.name for p in run.programs() for i in p.instructions)
    assert names.pop("tensor_range") == names.pop("quantize_tensor") == 1
    assert names.pop("matmul_quantized") == 2
    unfused_part = activation == "Relu" or (activation and residual)
    assert (not names) or unfused_part, names


def test_rank_of_a_dynamic_product() -> None:
    """Fusions of later nodes may need it."""
    g = Net(17)
    w = g.array(np.round(g.numbers(6, 7) * 40).astype(np.int8))
    proto = g.proto(dynamic(g, g.x(2, 5, 6), w, g.array(0.01, np.float32), ""))
    graph = prepare(model_from(proto)).graph
    assert [node.op_type for node in graph.nodes] == ["DynamicQuantizeMatMul"]
    assert ranks(graph)[graph.outputs[0].name] == 3


@pytest.mark.parametrize("scale_computed", [False, True])
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_product_of_integers_to_floats(scale_computed: bool, zero: bool, bias: bool) -> None:
    """Zero points of weights need the sums of rows, which the quantization of the rows computes."""
    g = Net(17)
    integers, unit, offset = g.nodes("DynamicQuantizeLinear", [g.x(3, 5, 6)], 3)
    w = g.array(np.round(g.numbers(6, 7) * 40).astype(np.int8))
    scales = g.array(np.arange(7) * 0.01 + 0.01, np.float32)
    if not scale_computed:
        unit, offset = g.array(0.02, np.float32), g.array(7, np.uint8)
    inputs = [integers, w, unit, scales, offset, g.array(np.arange(7), np.int8) if zero else ""]
    inputs += [g.w(7)] if bias else []
    y = g.node("MatMulIntegerToFloat", *inputs, domain="com.microsoft")
    g.output(y, TensorProto.FLOAT, ["a", "b", 7])
    proto = g.model()
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    unfused(proto, g.feeds, host=zero and not scale_computed)
    assert_close(by_programs(proto, g.feeds), by_onnxruntime(proto, g.feeds))


def by_ours(source: Path, target: Path, per_channel: bool) -> None:
    options = Options(method="dynamic", per_channel=per_channel)
    quantize_onnx(source, target, options=options)


def by_theirs(kind: QuantType) -> Any:
    def quantize(source: Path, target: Path, per_channel: bool) -> None:
        quantize_dynamic(source, target, per_channel=per_channel, weight_type=kind)

    return quantize


def rewrite(source: Path, target: Path) -> None:
    """Write the graph that ONNX Runtime runs, with its own operators."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry(*EXACT)
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    onnxruntime.InferenceSession(str(source), options)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    "quantize", [by_ours, by_theirs(QuantType.QInt8), by_theirs(QuantType.QUInt8)],
    ids=["halfbyte", "onnxruntime int8", "onnxruntime uint8"],
)  # fmt: skip
def test_dynamic_files(tmp_path: Path, quantize: Any, per_channel: bool) -> None:
    """A whole encoder, also as ONNX Runtime rewrites it.

    A number halfway between two integers may be rounded to either, which changes all later values a
    little; in most runs there is none.
    """
    source, path, rewritten = (tmp_path / name for name in ("m.onnx", "q.onnx", "r.onnx"))
    save(make("bert-small"), source)
    quantize(source, path, per_channel)
    rewrite(path, rewritten)
    off = []
    for proto in (onnx.load(path), onnx.load(rewritten)):
        run, names = runner(proto), {v.name for v in proto.graph.input}
        for batch, length in ((1, 1), (1, 9), (3, 70)):
            feeds = {name: x for name, x in text(batch, length).items() if name in names}
            (output,) = outputs_of(run, feeds)
            wanted = [
                by_definition(proto, feeds)[0],
                by_onnxruntime(proto, feeds, "ENABLE_EXTENDED")[0],
            ]
            off.append(max(float(np.abs(output - y).max() / np.abs(y).max()) for y in wanted))
        kernels = Counter(i.operator.kernel(i) for p in run.programs() for i in p.instructions)
        run.close()
        products = {"matmul_quantized": 12 * 3, "quantize_tensor": 8 * 3, "tensor_range": 8 * 3}
        assert products.items() <= kernels.items()
        assert not any("Quantize" in k or "Integer" in k for k in kernels)
    assert max(off) <= 0.02
    assert np.median(off) <= 1e-6
