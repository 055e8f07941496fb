"""ONNX Runtime's descriptions of devices and memory: here, of the processor."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any, NoReturn

from halfbyte.onnx.session.errors import Fail
from halfbyte.onnx.session.providers import PROVIDER
from halfbyte.onnx.session.values import check_device


class OrtAllocatorType(IntEnum):
    """Kinds of allocators; all are the same here."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(IntEnum):
    """Where memory of a provider is."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtMemoryInfoDeviceType(IntEnum):
    """Kinds of devices with memory."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtDeviceMemoryType(IntEnum):
    """Who may use memory."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtHardwareDeviceType(IntEnum):
    """Kinds of devices."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtExecutionProviderDevicePolicy(IntEnum):
    """What a session's device is chosen by; there is one."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class OrtDeviceVendorId(IntEnum):
    """Makers of devices, by their PCI numbers."""

    NONE = 0
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtCompileApiFlags(IntFlag):
    """Options of compilation, which is refused."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class OrtDevice:
    """The processor."""

    def __init__(self, c_ort_device: Any = None) -> None:
        self._device = self if c_ort_device is None else c_ort_device

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device of a name; raises `RuntimeProblem` for others than "cpu"."""
        check_device(ort_device_name)
        return OrtDevice()

    def _get_c_device(self) -> OrtDevice:
        return self

    def device_id(self) -> int:
        """The number of the device."""
        return 0

    def device_type(self) -> int:
        """The kind of device: a processor."""
        return 0

    def device_vendor_id(self) -> int:
        """The maker of the device: not given."""
        return 0

    def device_mem_type(self) -> int:
        """The kind of memory: the default."""
        return 0


@dataclass(frozen=True)
class OrtMemoryInfo:
    """A description of memory."""

    name: str = "Cpu"
    allocator_type: OrtAllocatorType = OrtAllocatorType.ORT_ARENA_ALLOCATOR
    device_id: int = 0
    mem_type: OrtMemType = OrtMemType.DEFAULT
    device_mem_type: OrtDeviceMemoryType = OrtDeviceMemoryType.DEFAULT
    device_vendor_id: int = 0

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        device_mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """A description of memory of a device."""
        return OrtMemoryInfo(
            name, allocator_type, device_id, OrtMemType.DEFAULT, device_mem_type, vendor_id
        )


def _machine() -> str:
    import platform

    return platform.machine()


@dataclass(frozen=True)
class OrtHardwareDevice:
    """A device of the machine."""

    type: OrtHardwareDeviceType = OrtHardwareDeviceType.CPU
    vendor: str = field(default_factory=_machine)
    vendor_id: int = 0
    device_id: int = 0
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OrtEpDevice:
    """A device, and the provider that runs models on it."""

    ep_name: str = PROVIDER
    ep_vendor: str = "halfbyte"
    ep_metadata: dict[str, str] = field(default_factory=dict)
    ep_options: dict[str, str] = field(default_factory=dict)
    device: OrtHardwareDevice = field(default_factory=OrtHardwareDevice)

    def memory_info(self, kind: OrtDeviceMemoryType) -> OrtMemoryInfo:
        """The memory of the device."""
        return OrtMemoryInfo(device_mem_type=kind)

    def create_sync_stream(self, options: dict[str, str] | None = None) -> NoReturn:
        """Refuse a stream: the processor has none."""
        raise Fail("OrtEpDevice.create_sync_stream: the processor has no streams")


def get_ep_devices() -> list[OrtEpDevice]:
    """The processor."""
    return [OrtEpDevice()]


class OrtArenaCfg:
    """Sizes of arenas; they are accepted and have no effect."""

    def __init__(self, *arguments: Any) -> None:
        names = (
            "max_mem", "arena_extend_strategy", "initial_chunk_size_bytes",
            "max_dead_bytes_per_chunk", "initial_growth_chunk_size_bytes",
            "max_power_of_two_extend_bytes",
        )  # fmt: skip
        given = arguments[0] if arguments else None
        values = given if isinstance(given, dict) else dict(zip(names, arguments, strict=False))
        self.max_mem = values.get("max_mem", 0)
        self.arena_extend_strategy = values.get("arena_extend_strategy", -1)
        self.initial_chunk_size_bytes = values.get("initial_chunk_size_bytes", -1)
        self.max_dead_bytes_per_chunk = values.get("max_dead_bytes_per_chunk", -1)
        self.initial_growth_chunk_size_bytes = values.get("initial_growth_chunk_size_bytes", -1)
        self.max_power_of_two_extend_bytes = values.get("max_power_of_two_extend_bytes", -1)


@dataclass(frozen=True)
class OrtExternalInitializerInfo:
    """Where an initializer's data are."""

    filepath: str
    file_offset: int
    byte_size: int
