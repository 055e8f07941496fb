"""Devices, vectors of values, sparse tensors and providers, beside ONNX Runtime's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.onnx.session.models import HALFBYTE, ONNX_RUNTIME, model, node, session, tensor

BOTH = pytest.mark.parametrize("api", [ONNX_RUNTIME, HALFBYTE], ids=["theirs", "ours"])
PAIRS = np.array([0, 0, 1, 1, 2, 3], np.int64)
ENUMS = (
    "OrtAllocatorType", "OrtMemType", "OrtMemoryInfoDeviceType", "OrtDeviceMemoryType",
    "OrtHardwareDeviceType", "OrtExecutionProviderDevicePolicy", "OrtDeviceVendorId",
    "OrtCompileApiFlags", "OrtSparseFormat",
)  # fmt: skip


@pytest.mark.parametrize("name", ENUMS)
def test_enumerations(name: str) -> None:
    expected, actual = (
        {k: int(v) for k, v in getattr(api, name).__members__.items()}
        for api in (ONNX_RUNTIME, HALFBYTE)
    )
    assert actual == expected


@BOTH
def test_devices(api: ModuleType) -> None:
    (device,) = api.get_ep_devices()
    assert device.ep_name == "CPUExecutionProvider"
    assert device.ep_options == {}
    assert device.device.type == api.OrtHardwareDeviceType.CPU
    cpu = api.OrtDevice.make("cpu", 0)
    parts = (cpu.device_id(), cpu.device_type(), cpu.device_vendor_id(), cpu.device_mem_type())
    assert parts == (0, 0, 0, 0)
    kinds = api.OrtAllocatorType.ORT_ARENA_ALLOCATOR, api.OrtMemType.DEFAULT
    memory = api.OrtMemoryInfo("Cpu", kinds[0], 0, kinds[1])
    assert (memory.name, memory.allocator_type, memory.mem_type) == ("Cpu", *kinds)
    api.create_and_register_allocator(memory, None)
    assert api.OrtArenaCfg({"max_mem": 9}).max_mem == 9
    with pytest.raises(Exception, match=r"(?i)device|cuda|webgpu|other"):
        api.OrtDevice.make("other", 0)


@BOTH
def test_a_session(api: ModuleType) -> None:
    options = api.SessionOptions()
    assert not options.has_providers()
    options.add_provider("CPUExecutionProvider", {})
    assert options.has_providers()
    options = api.SessionOptions()
    options.set_provider_selection_policy(api.OrtExecutionProviderDevicePolicy.PREFER_CPU)
    ours = api.InferenceSession(model([node("Neg", "x")]), options)
    assert [i.name for i in ours.get_input_memory_infos()] == ["Cpu"]
    assert [i.name for i in ours.get_output_memory_infos()] == ["Cpu"]
    assert [d.ep_name for d in ours.get_input_epdevices()] == ["CPUExecutionProvider"]
    assert ours._sess is not None
    assert ours.get_tuning_results() == []
    ours.set_tuning_results([])
    ours.set_ep_dynamic_options({"a": "b"})
    value = ours.create_ortvalue_from_shape_and_type([2], np.float32, "cpu", 0)
    assert value.shape() == [2]
    with pytest.raises(Exception, match=r"get_provider_graph|assignment"):
        ours.get_provider_graph_assignment_info()


@BOTH
def test_vectors(api: ModuleType) -> None:
    state = api.capi.onnxruntime_pybind11_state
    one = session(api, model([node("Neg", "x"), node("Abs", "x", "z")],
                             outputs=[tensor("y"), tensor("z")]))  # fmt: skip
    x = api.OrtValue.ortvalue_from_numpy(np.float32([1, -2]))
    feeds, fetches = state.OrtValueVector(), state.OrtValueVector()
    feeds.reserve(1)
    feeds.push_back(x._ortvalue)
    device = api.OrtDevice.make("cpu", 0)._get_c_device()
    one.run_with_ortvaluevector(
        api.RunOptions(), ["x"], feeds, ["y", "z"], fetches, [device, device]
    )
    assert [value.numpy().tolist() for value in fetches] == [[-1, 2], [1, 2]]
    assert len(fetches) == 2
    assert fetches.element_type_at(1) == TensorProto.FLOAT
    assert list(fetches.bool_tensor_indices()) == []
    binding = one.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_output("y")
    one.run_with_iobinding(binding)
    assert binding.get_outputs_as_ortvaluevector()[0].numpy().tolist() == [-1, 2]


def test_copies() -> None:
    """ONNX Runtime needs a device with copies of its own."""
    x, target = (HALFBYTE.OrtValue.ortvalue_from_numpy(np.float32(v)) for v in ([1, -2], [0, 0]))
    HALFBYTE.copy_tensors([x], [target])
    assert target.numpy().tolist() == [1, -2]
    with pytest.raises(HALFBYTE.capi._pybind_state.Fail.__mro__[1], match="as many"):
        HALFBYTE.copy_tensors([x, x], [target])
    memory = HALFBYTE.get_ep_devices()[0].memory_info(HALFBYTE.OrtDeviceMemoryType.DEFAULT)
    assert memory == HALFBYTE.OrtMemoryInfo()
    made = HALFBYTE.OrtMemoryInfo.create_v2(
        "a", HALFBYTE.OrtMemoryInfoDeviceType.CPU, 3, 1,
        HALFBYTE.OrtDeviceMemoryType.HOST_ACCESSIBLE, 0, HALFBYTE.OrtAllocatorType.INVALID,
    )  # fmt: skip
    assert (made.name, made.device_vendor_id, made.device_id) == ("a", 3, 1)


def coo(api: ModuleType, **changes: Any) -> Any:
    values = {"dense_shape": np.array([3, 4], np.int64), "values": np.float32([1, 2, 3]),
              "coo_indices": np.array([0, 5, 11], np.int64)} | changes  # fmt: skip
    return api.SparseTensor.sparse_coo_from_numpy(*values.values(), api.OrtDevice.make("cpu", 0))


@BOTH
def test_sparse_tensors(api: ModuleType) -> None:
    places = coo(api)
    assert places.format() == api.OrtSparseFormat.ORT_SPARSE_COO
    assert places.as_coo_view().indices().tolist() == [0, 5, 11]
    rows = api.SparseTensor.sparse_csr_from_numpy(
        np.array([3, 4], np.int64), np.float32([1, 2, 3]), np.array([0, 1, 3], np.int64),
        np.array([0, 1, 2, 3], np.int64), api.OrtDevice.make("cpu", 0),
    )  # fmt: skip
    assert rows.format() == api.OrtSparseFormat.ORT_SPARSE_CSRC
    assert rows.as_csrc_view().inner().tolist() == [0, 1, 3]
    assert rows.as_csrc_view().outer().tolist() == [0, 1, 2, 3]
    for tensor_ in (places, rows):
        assert tensor_.values().tolist() == [1, 2, 3]
        assert list(tensor_.dense_shape()) == [3, 4]
        assert tensor_.data_type() == "sparse_tensor(float)"
        assert tensor_.device_name().lower() == "cpu"
    value = api.OrtValue.ort_value_from_sparse_tensor(places)
    assert value.is_sparse_tensor()
    assert value.as_sparse_tensor().values().tolist() == [1, 2, 3]
    for refused in (places.as_csrc_view, rows.as_coo_view, places.as_blocksparse_view):
        with pytest.raises(Exception, match=r".+"):
            refused()


def test_sparse_tensors_are_checked() -> None:
    for changes in ({"coo_indices": np.array([0, 5, 12])}, {"coo_indices": np.array([0, 5])},
                    {"coo_indices": np.array([0, -1, 3])}):  # fmt: skip
        with pytest.raises(HALFBYTE.capi._pybind_state.Fail.__mro__[1], match="place"):
            coo(HALFBYTE, **changes)


def test_a_sparse_input_and_output() -> None:
    """No operator of ONNX Runtime that takes both is defined here: its Identity takes neither."""
    values = [
        helper.make_sparse_tensor_value_info(name, TensorProto.FLOAT, [3, 4]) for name in "ay"
    ]
    graph = helper.make_graph([node("Identity", "a")], "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 17)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    one = session(HALFBYTE, data)
    (direct,) = one.run(None, {"a": coo(HALFBYTE)})
    assert isinstance(direct, HALFBYTE.SparseTensor)
    assert direct.values().tolist() == [1, 2, 3]
    given = HALFBYTE.OrtValue.ort_value_from_sparse_tensor(coo(HALFBYTE, coo_indices=PAIRS))
    (value,) = one.run_with_ort_values(None, {"a": given})
    assert value.as_sparse_tensor().as_coo_view().indices().tolist() == PAIRS.reshape(3, 2).tolist()
