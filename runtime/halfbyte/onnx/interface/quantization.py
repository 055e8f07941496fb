"""`onnxruntime.quantization`: its settings; quantizing itself is refused."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import Enum
from typing import Any


class _Named(Enum):
    """Settings that are known by their names."""

    def __str__(self) -> str:
        return self.name

    @classmethod
    def from_string(cls, name: str) -> Any:
        """The setting of a name; raises ValueError."""
        try:
            return cls[name]
        except KeyError:
            raise ValueError(f"expected one of {', '.join(cls.__members__)}, found {name!r}") from (
                None
            )


class QuantizationMode(_Named):
    """How products are computed."""

    IntegerOps = 0
    QLinearOps = 1


class QuantType(_Named):
    """Types of quantized values."""

    QInt8 = 0
    QUInt8 = 1
    QFLOAT8E4M3FN = 2
    QInt16 = 3
    QUInt16 = 4
    QInt4 = 5
    QUInt4 = 6


class QuantFormat(_Named):
    """How a graph expresses quantization."""

    QOperator = 0
    QDQ = 1


class CalibrationMethod(Enum):
    """How ranges are found."""

    MinMax = 0
    Entropy = 1
    Percentile = 2
    Distribution = 3


class CalibrationDataReader(ABC):
    """Feeds for calibration, one after the other; None ends them."""

    @abstractmethod
    def get_next(self) -> dict[str, Any] | None:
        """The next feed."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        feed = self.get_next()
        if feed is None:
            raise StopIteration
        return feed

    def __len__(self) -> int:
        raise NotImplementedError

    def set_range(self, start_index: int, end_index: int) -> None:
        """Defined by readers that can skip feeds."""
        raise NotImplementedError
