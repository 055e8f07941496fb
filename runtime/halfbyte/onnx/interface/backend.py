"""`onnxruntime.backend`: ONNX's interface of backends, on our sessions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NoReturn

from halfbyte.onnx.session.options import RunOptions, SessionOptions
from halfbyte.onnx.session.session import InferenceSession

_SESSION = (
    "enable_mem_pattern", "enable_mem_reuse", "enable_cpu_mem_arena", "execution_mode",
    "execution_order", "graph_optimization_level", "inter_op_num_threads", "intra_op_num_threads",
    "log_severity_level", "log_verbosity_level", "logid", "use_deterministic_compute",
)  # fmt: skip
_RUN = ("log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches")


class OnnxRuntimeBackendRep:
    """A model ready to run."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:
        """The outputs for a list of inputs, or for the only input.

        Raises
        ------
        RuntimeError
            The model has several inputs, or an option may not be set here.
        """
        options = RunOptions()
        _set(options, kwargs, _RUN)
        names = [argument.name for argument in self._session.get_inputs()]
        if not isinstance(inputs, list):
            if len(names) != 1:
                raise RuntimeError(f"Model expect {len(names)} inputs")
            inputs = [inputs]
        return self._session.run(None, dict(zip(names, inputs, strict=False)), options)


class OnnxRuntimeBackend:
    """Makes `OnnxRuntimeBackendRep`."""

    allowReleasedOpsetsOnly = True

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **kwargs: Any) -> bool:
        """Whether a model can run on a device."""
        return device is None or cls.supports_device(device)

    @classmethod
    def is_opset_supported(cls, model: Any) -> tuple[bool, str]:
        """Whether a model's operators are of supported versions; the session checks each."""
        return True, ""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether it is the processor."""
        return device == "CPU"

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **kwargs: Any) -> OnnxRuntimeBackendRep:
        """A model ready to run: of a path, bytes, an `onnx.ModelProto` or a session.

        Raises
        ------
        RuntimeError
            The device is not the processor, or an option may not be set here.
        """
        if device is not None and not cls.supports_device(device):
            raise RuntimeError(f"Incompatible device expected '{device}', got 'CPU'")
        if isinstance(model, OnnxRuntimeBackendRep):
            return model
        if isinstance(model, InferenceSession):
            return OnnxRuntimeBackendRep(model)
        if not isinstance(model, str | bytes | os.PathLike):
            model = model.SerializeToString()
        options = SessionOptions()
        _set(options, kwargs, _SESSION)
        return OnnxRuntimeBackendRep(InferenceSession(model, options))

    @classmethod
    def run_model(
        cls, model: Any, inputs: Any, device: str | None = None, **kwargs: Any
    ) -> list[Any]:
        """The outputs of a model."""
        return cls.prepare(model, device, **kwargs).run(inputs, **kwargs)

    @classmethod
    def run_node(cls, node: Any, inputs: Any, *arguments: Any, **kwargs: Any) -> NoReturn:
        """Refused, as in ONNX Runtime."""
        raise NotImplementedError("a single node is not run: make a model of it")


def _set(options: Any, values: dict[str, Any], allowed: Sequence[str]) -> None:
    for name, value in values.items():
        if name in allowed:
            setattr(options, name, value)
        elif hasattr(options, name):
            raise RuntimeError(
                f"attribute {name!r} is not permitted via the backend API, expected one of "
                f"{', '.join(allowed)}"
            )


is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = OnnxRuntimeBackend.run_model
supports_device = OnnxRuntimeBackend.supports_device
