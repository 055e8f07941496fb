"""A machine's limits, and the work of a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benches.figures import Series

from halfbyte.text.bench import dot_peak, read_bandwidth
from halfbyte.text.opening import open_model
from halfbyte.weights import Tensor


@dataclass(frozen=True)
class Limits:
    """Measured on this machine, by number of threads."""

    read: dict[int, float]  # GB/s
    dot: dict[int, float]  # GOP/s of the int8 dot product; a multiply and an add are two

    def text(self) -> str:
        """One line per number of threads."""
        return "\n".join(
            f"This machine with {count} thread{'s' * (count > 1)}: "
            f"reads {self.read[count]:.1f} GB/s, int8 dot product {self.dot[count]:.0f} GOP/s."
            for count in self.read
        )


@dataclass(frozen=True)
class Work:
    """One token's share of a model."""

    file_bytes: int  # read once per token decoded
    block_products: int  # multiply-adds of a prompt's token in matrices of blocks; 0 without any

    def share(self, series: Series, limits: Limits) -> str:
        """Percent of the limit of a test; "-" where none was measured."""
        if series.threads not in limits.read:
            return "-"
        if series.test.startswith("tg"):
            percent = self.file_bytes * series.speed / limits.read[series.threads] / 1e7
        elif self.block_products:
            percent = 2 * self.block_products * series.speed / limits.dot[series.threads] / 1e7
        else:
            return "-"  # float products
        return f"{percent:.0f} %"


def measure_limits(threads: list[int]) -> Limits:
    """Measure for some tenths of a second."""
    return Limits({t: read_bandwidth(t) for t in threads}, {t: dot_peak(t) for t in threads})


def work_of(path: Path) -> Work:
    """Count a file's work. Embeddings are looked up; a prompt needs the head for its last token."""
    tensors = open_model(path).tensors.values()
    return Work(path.stat().st_size, sum(_products(t) for t in tensors))


def _products(tensor: Tensor) -> int:
    if tensor.format.block == 1 or tensor.name in ("token_embd.weight", "output.weight"):
        return 0
    rows, columns = tensor.shape
    return rows * columns
