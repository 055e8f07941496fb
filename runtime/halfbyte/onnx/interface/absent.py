"""Names of `onnxruntime` that packages import, and that are refused when they are called."""

from __future__ import annotations

from halfbyte.standins import refused

QUANTIZE = "`halfbyte.quantize` and the command `quantize` write quantized ONNX"
OPTIMIZE = "sessions fuse operators themselves, and run what ONNX Runtime's optimizers write"
COMPILE = "sessions compile models themselves"

TOP = {
    "ModelCompiler": COMPILE, "AdapterFormat": "", "LoraAdapter": "", "OrtSyncStream": "",
    "OrtEpAssignedNode": "", "OrtEpAssignedSubgraph": "", "OrtEpContextData": "",
    "OrtEpContextDataBuffer": "",
}  # fmt: skip

MODULES: dict[str, tuple[str, str]] = {
    "quantization": (QUANTIZE, (
        "quantize quantize_dynamic quantize_static quant_pre_process StaticQuantConfig"
        " DynamicQuantConfig get_qdq_config create_calibrator write_calibration_table QDQQuantizer"
        " CudaQuantizer CalibraterBase MinMaxCalibrater TensorData TensorsData load_tensors_data"
        " save_tensors_data"
    )),
    "quantization.quantize": (QUANTIZE, "quantize quantize_dynamic quantize_static"),
    "quantization.shape_inference": (QUANTIZE, "quant_pre_process"),
    "quantization.calibrate": (QUANTIZE, "create_calibrator CalibraterBase MinMaxCalibrater"),
    "quantization.onnx_quantizer": (QUANTIZE, "ONNXQuantizer"),
    "quantization.qdq_quantizer": (QUANTIZE, "QDQQuantizer"),
    "quantization.matmul_nbits_quantizer": (QUANTIZE, (
        "MatMulNBitsQuantizer DefaultWeightOnlyQuantConfig RTNWeightOnlyQuantConfig"
        " HQQWeightOnlyQuantConfig GPTQWeightOnlyQuantConfig WeightOnlyQuantConfig"
    )),
    "transformers.optimizer": (OPTIMIZE, (
        "optimize_model optimize_by_onnxruntime optimize_by_fusion"
    )),
    "transformers.fusion_options": (OPTIMIZE, "FusionOptions AttentionMaskFormat"),
    "transformers.float16": (QUANTIZE, "convert_float_to_float16 convert_np_to_float16"),
    "transformers.onnx_model": (OPTIMIZE, "OnnxModel"),
    "transformers.onnx_model_bert": (OPTIMIZE, "BertOnnxModel BertOptimizationOptions"),
    "transformers.io_binding_helper": ("", "CudaSession GpuBindingManager IOBindingHelper"),
    "tools.symbolic_shape_infer": (OPTIMIZE, "SymbolicShapeInference"),
    "tools.onnx_model_utils": (OPTIMIZE, (
        "make_input_shape_fixed make_dim_param_fixed fix_output_shapes optimize_model"
    )),
    "tools.convert_onnx_models_to_ort": (COMPILE, "convert_onnx_models_to_ort"),
}  # fmt: skip


def absent() -> dict[str, dict[str, type]]:
    """What is refused, by module."""
    modules = {
        "onnxruntime": {name: refused("onnxruntime", name, why) for name, why in TOP.items()}
    }
    for module, (why, names) in MODULES.items():
        full = f"onnxruntime.{module}"
        modules[full] = {name: refused(full, name, why) for name in names.split()}
    return modules
