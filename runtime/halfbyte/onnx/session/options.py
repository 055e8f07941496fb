"""Options of sessions and runs, as ONNX Runtime has them."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from types import UnionType
from typing import Any

import numpy as np

from halfbyte.formats.mapped import Buffer
from halfbyte.onnx.program_cache import LIMIT
from halfbyte.onnx.session import errors
from halfbyte.onnx.session.errors import RuntimeProblem, TypeProblem
from halfbyte.onnx.session.providers import check_providers
from halfbyte.onnx.session.values import OrtValue


class GraphOptimizationLevel(IntEnum):
    """How much a model is rewritten; ORT_DISABLE_ALL runs every node by its definition."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Operators always run one after the other; ORT_PARALLEL is accepted and changes nothing."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """Nodes always run in the order of the file, sorted where needed."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Checked:
    """A fixed set of attributes, which accept values of their default's type.

    An attribute with the default None accepts True, False and None.
    """

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        kind = _KINDS.get((type(self).__name__, name))
        if kind is None and not name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        object.__setattr__(self, name, value if kind is None else _as(kind, name, value))


@dataclass(slots=True)
class SessionOptions(_Checked):
    """How a model runs.

    The following have an effect; the others are accepted for compatibility:

    Attributes
    ----------
    intra_op_num_threads : int
        Number of threads; 0 is one per fast core.
    graph_optimization_level : GraphOptimizationLevel
        ORT_DISABLE_ALL runs every node by its definition, slowly; all other levels are the same.
    enable_profiling : bool
        Time every instruction; `InferenceSession.end_profiling` writes them.
    profile_file_prefix : str
        The beginning of the name of the file that `end_profiling` writes.
    use_deterministic_compute : bool
        True: products of int8 and int4 weights have the same bits on every processor, for a single
        row and in any batch. False, the default: products of int8 weights with 16 rows or more may
        be computed differently if that is faster on the processor; results differ by int8
        rounding. In both cases, float32 products do not depend on the other rows, and their last
        bits depend on whether the processor fuses multiplication and addition. Nodes without a
        kernel run in NumPy, whose sums may depend on both.
    program_cache_bytes : int
        An option of halfbyte: the memory of programs that is kept for later runs with the same
        shapes, 512 MiB by default. The programs of a run may take more until the next one.
    optimized_model_filepath : str
        Where to write the model as ONNX's own operators, which ONNX Runtime runs too: functions are
        inlined, constants computed, equal nodes merged and unused ones dropped, but nothing is
        fused. It opens faster.
    packed_weights_filepath : str
        An option of halfbyte: a file of packed weights. The first run writes it; later sessions of
        the same model, with the same kernels, map it instead of packing. It may be deleted.
    backend : str
        An option of halfbyte: "native", "native-avx2", ..., "numpy".
    int8_attention : bool or None
        An option of halfbyte: attention whose queries, keys and values come from int8 products is
        in int8 too. None: as the model's metadata says, which `quantize` writes after it compared
        the outputs. ONNX Runtime has no such option, so its results differ by int8 rounding.
    """

    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    enable_profiling: bool = False
    profile_file_prefix: str = "onnxruntime_profile_"
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_cpu_mem_arena: bool = True
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    optimized_model_filepath: str = ""
    packed_weights_filepath: str = ""
    backend: str = "native"
    program_cache_bytes: int = LIMIT
    int8_attention: bool | None = None
    _config: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _initializers: dict[str, OrtValue] = field(default_factory=dict, init=False, repr=False)
    _files: dict[str, Buffer] = field(default_factory=dict, init=False, repr=False)
    _providers: list[str] = field(default_factory=list, init=False, repr=False)
    _sizes: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _denoted: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _canceled: bool = field(default=False, init=False, repr=False)

    def set_load_cancellation_flag(self, value: bool) -> None:
        """Cancel the loading of sessions with these options; called by another thread."""
        self._canceled = bool(value)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Store a setting; none has an effect here."""
        self._config[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """A setting that was stored."""
        return _entry(self._config, key, "SessionOptions")

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix a symbolic size, which inputs must have then."""
        self._sizes[name] = operator.index(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fix all sizes of inputs with a denotation, such as DATA_BATCH."""
        self._denoted[denotation] = operator.index(size)

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Replace the value of an initializer."""
        self._initializers[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """Replace several initializers, such as those with external data of a model in memory."""
        if len(names) != len(values):
            raise RuntimeProblem(f"{len(values)} values for {len(names)} names: expected as many")
        self._initializers.update(zip(names, values, strict=True))

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Buffer], lengths: Sequence[int]
    ) -> None:
        """Supply files with external data, by the locations that the model gives."""
        if not len(names) == len(buffers) == len(lengths):
            raise RuntimeProblem(
                f"{len(names)} names, {len(buffers)} buffers, {len(lengths)} lengths: expected as "
                "many of each"
            )
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            self._files[name] = np.frombuffer(buffer, np.uint8)[:length]

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Choose a provider; there is one, and others are warned of."""
        check_providers([name], None)
        self._providers.append(name)

    def add_provider_for_devices(
        self, ep_devices: Sequence[Any], provider_options: Mapping[str, str]
    ) -> None:
        """Choose the provider of devices, which `get_ep_devices` lists."""
        for device in ep_devices:
            self.add_provider(device.ep_name, provider_options)

    def has_providers(self) -> bool:
        """Whether providers were added."""
        return bool(self._providers)

    def set_provider_selection_policy(self, policy: Any) -> None:
        """Do nothing: there is one device."""

    def set_provider_selection_policy_delegate(self, delegate: Callable[..., Any]) -> None:
        """Do nothing: there is one device."""

    def set_ep_context_data_read_func(self, func: Callable[..., Any]) -> None:
        """Do nothing: models of providers are refused."""

    def clear_ep_context_data_read_func(self) -> None:
        """Do nothing: models of providers are refused."""

    def register_custom_ops_library(self, path: str) -> None:
        """Refuse a library of operators, which is machine code for ONNX Runtime."""
        raise errors.NotImplemented(f"{path}: libraries of custom operators cannot be loaded")


@dataclass(slots=True)
class RunOptions(_Checked):
    """Options of one run.

    Another thread can set `terminate`: the run ends before it begins, while it waits for its turn
    or captures a program, or before the next node that is not in a program, such as those of loops.
    """

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    terminate: bool = False
    only_execute_path_to_fetches: bool = False
    _config: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def add_active_adapter(self, adapter: Any) -> None:
        """Refuse an adapter: a graph's adapters are weights in its file."""
        raise errors.NotImplemented("RunOptions.add_active_adapter: adapters are not in halfbyte")

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Store a setting; none has an effect here."""
        self._config[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """A setting that was stored."""
        return _entry(self._config, key, "RunOptions")


def _entry(config: dict[str, str], key: str, where: str) -> str:
    if key not in config:
        raise RuntimeProblem(f"{where} does not have configuration with key: {key}")
    return config[key]


def _as(kind: type | UnionType, name: str, value: Any) -> Any:
    """The value as this type; raises if it has another."""
    if kind is str and isinstance(value, os.PathLike):
        value = os.fspath(value)
    if kind is int and not isinstance(value, str):
        try:
            return operator.index(value)
        except TypeError:
            pass
    if not isinstance(value, kind):
        expected = kind.__name__ if isinstance(kind, type) else str(kind)
        raise TypeProblem(f"{name}: expected {expected}, found {type(value).__name__} {value!r}")
    return value


_KINDS: dict[tuple[str, str], type | UnionType] = {
    (options.__name__, f.name): bool | None if f.default is None else type(f.default)
    for options in (SessionOptions, RunOptions)
    for f in fields(options)
    if f.init
}
