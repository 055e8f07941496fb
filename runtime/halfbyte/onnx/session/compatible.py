"""Members of ONNX Runtime's sessions that have little to say about a processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from halfbyte.onnx.session.described import Described
from halfbyte.onnx.session.errors import Fail
from halfbyte.onnx.session.options import RunOptions
from halfbyte.onnx.session.values import OrtValue
from halfbyte.onnx.session.vectors import OrtValueVector

if TYPE_CHECKING:  # imported on first use: opening a session should not wait for it
    from halfbyte.onnx.session.devices import OrtEpDevice, OrtMemoryInfo


class Compatible(Described):
    """A session's members for devices, graphs and tuning."""

    @property
    def _sess(self) -> Compatible:  # the object in C++, which packages pass on
        return self

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """The memory of the processor, for each input."""
        from halfbyte.onnx.session.devices import OrtMemoryInfo

        return [OrtMemoryInfo() for _ in self.get_inputs()]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """The memory of the processor, for each output."""
        from halfbyte.onnx.session.devices import OrtMemoryInfo

        return [OrtMemoryInfo() for _ in self.get_outputs()]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """The processor, for each input."""
        from halfbyte.onnx.session.devices import OrtEpDevice

        return [OrtEpDevice() for _ in self.get_inputs()]

    def get_tuning_results(self) -> list[dict[str, Any]]:
        """None: kernels are not tuned."""
        return []

    def set_tuning_results(self, results: Sequence[Any], *, error_on_invalid: bool = False) -> None:
        """Do nothing: kernels are not tuned."""

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Do nothing: the processor has no such options."""

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Do nothing: graphs are captured on GPUs."""

    def get_provider_graph_assignment_info(self) -> NoReturn:
        """Refused: all nodes are the processor's."""
        raise Fail(
            f"{self._model.path}: get_provider_graph_assignment_info: all nodes are the processor's"
        )

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, *arguments: Any
    ) -> OrtValue:
        """A tensor of zeros."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Defined by the session."""
        raise NotImplementedError

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[Any],
    ) -> None:
        """Compute outputs as `run_with_ort_values` does, and put them into `fetches`.

        A value that is in `fetches` already is overwritten.
        """
        inputs = dict(zip(feed_names, feeds, strict=True))
        results = self.run_with_ort_values(list(fetch_names), inputs, run_options)
        for index, result in enumerate(results):
            if index < len(fetches):
                fetches[index].update_inplace(np.asarray(result.numpy()))
            else:
                fetches.push_back(result)
