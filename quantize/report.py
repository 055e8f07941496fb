"""The report of a quantization, per tensor and in total."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from halfbyte.errors import printable


@dataclass(frozen=True)
class Row:
    """One tensor; decibels are None where they are not defined."""

    name: str
    shape: tuple[int, ...]
    source: str
    type: str
    bytes: int
    bits_per_weight: float
    snr_db: float | None  # signal to noise; None: no noise
    search_gain_db: float | None  # weighted error of plain rounding to that of the search
    equalized: int  # channels scaled by a power of two
    note: str
    divergence: float | None = None  # mean KL that quantizing only this tensor costs, as estimated


@dataclass(frozen=True)
class OutputRow:
    """An output of a graph compared with the original's; None where a figure is not defined."""

    name: str
    cosine: float | None
    snr_db: float | None  # of the original to the difference; None: no difference
    not_finite: int = 0  # numbers that are NaN or infinite, where the original's are finite

    @property
    def is_lost(self) -> bool:
        """Whether all numbers became zero; the original's are not."""
        return self.cosine is None and self.snr_db is not None

    @property
    def loss(self) -> float:
        """1 - cosine; 1 where numbers became NaN, infinite or all zero."""
        if self.not_finite or self.is_lost:
            return 1.0
        return 0.0 if self.cosine is None else 1 - self.cosine


@dataclass(frozen=True)
class LayerRow:
    """A layer of a graph, quantized while the others are exact."""

    name: str
    loss: float  # 1 - cosine of the worst output
    together: int  # layers that were measured at once and share their loss
    raised: bool  # computed more precisely than the others


@dataclass(frozen=True)
class Report:
    """A run of `quantize`."""

    source: str
    source_format: str
    output: str
    type: str
    bytes_before: int
    bytes_after: int
    weights: int
    seconds: float
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    outputs: tuple[OutputRow, ...] = ()
    samples: str = ""  # the inputs that `outputs` were measured on
    layers: tuple[LayerRow, ...] = ()  # the most sensitive first, where they were measured
    curve: tuple[tuple[float, int, float], ...] = ()  # bits, bytes, and KL as estimated

    @property
    def bits_per_weight(self) -> float:
        """Mean over all tensors, including those that stay F32."""
        return 8 * sum(row.bytes for row in self.rows) / self.weights

    @property
    def megabytes_per_second(self) -> float:
        """Input bytes per second, in units of 10^6."""
        return self.bytes_before / 1e6 / max(self.seconds, 1e-9)

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            **asdict(self),
            "bits_per_weight": self.bits_per_weight,
            "megabytes_per_second": self.megabytes_per_second,
        }

    def table(self) -> str:
        """The report as text: a line per type, then remarks."""
        lines = [
            f"{self.source} ({self.source_format}) {self.bytes_before / 1e6:.2f} MB -> "
            f"{self.output} {self.bytes_after / 1e6:.2f} MB: "
            f"{self.bytes_before / self.bytes_after:.2f} x smaller, "
            f"{self.bits_per_weight:.2f} bits per weight, {self.seconds:.2f} s, "
            f"{self.megabytes_per_second:.0f} MB/s",
            "",
            f"  {'type':<6}{'tensors':>8}{'weights':>14}{'bits/weight':>13}"
            f"{'MB':>10}{'SNR dB':>9}{'search dB':>11}",
        ]
        types = dict.fromkeys(row.type for row in self.rows)
        lines += [_type_line(name, [r for r in self.rows if r.type == name]) for name in types]
        channels = sum(row.equalized for row in self.rows)
        if channels:
            lines.append(f"  {channels} channels equalized by powers of two (exact)")
        lines += self._noisiest()
        lines += self._output_lines()
        lines += self._layer_lines()
        lines += self._curve_lines()
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  {row.name}: {row.type}: {row.note}" for row in self.rows if row.note]
        return "\n".join(map(printable, lines))

    def _noisiest(self, count: int = 3) -> list[str]:
        """A line that names the tensors with the lowest SNR, if there are any."""
        known = [(row.snr_db, row.name) for row in self.rows if row.snr_db is not None]
        if not known:
            return []
        lowest = ", ".join(f"{name} {snr:.2f} dB" for snr, name in sorted(known)[:count])
        return [f"  lowest SNR: {lowest}"]

    def _output_lines(self) -> list[str]:
        """A line per output."""
        lines = [f"  outputs beside the original's, {self.samples}:"] if self.outputs else []
        for row in self.outputs:
            cosine = "-" if row.cosine is None else f"{row.cosine:.6f}"
            lines.append(f"    {row.name}: cosine {cosine}, SNR {_decibels(row.snr_db)} dB")
        return lines

    def _layer_lines(self, count: int = 5) -> list[str]:
        """A line for each of the most sensitive layers, where they were measured."""
        if not self.layers:
            return []
        raised = sum(row.raised for row in self.layers)
        lines = [
            f"  {raised} of {len(self.layers)} layers kept more precise; "
            "cosine with only one layer quantized:"
        ]
        lines += [_layer_line(row) for row in self.layers[:count]]
        return lines

    def _curve_lines(self) -> list[str]:
        """A bar for each number of bits, by the logarithm of its KL."""
        if not self.curve:
            return []
        logs = [math.log10(max(kl, 1e-12)) for _, _, kl in self.curve]
        low, high = min(logs), max(logs)
        width = [1 + round(29 * (x - low) / max(high - low, 1e-9)) for x in logs]
        total = sum(row.divergence or 0 for row in self.rows)
        return [
            "  bits/weight and MB against the KL divergence, as the sum of the tensors' own:",
            *(f"  {bits:7.2f}{nbytes / 1e6:10.2f}{kl:12.6f} {'#' * n}"
              for (bits, nbytes, kl), n in zip(self.curve, width, strict=True)),
            f"  {self.bits_per_weight:7.2f}{self.bytes_after / 1e6:10.2f}{total:12.6f} this file",
        ]  # fmt: skip

    def details(self) -> str:
        """A line per tensor, and per layer where these were measured."""
        width = max((len(printable(row.name)) for row in self.rows), default=4)
        lines = [f"  {'tensor':<{width}}  {'from':<5} {'to':<5}{'bits/weight':>12}"
                 f"{'SNR dB':>9}{'search dB':>11}{'KL':>12}"]  # fmt: skip
        lines += [
            f"  {printable(row.name):<{width}}  {row.source:<5} {row.type:<5}"
            f"{row.bits_per_weight:>12.2f}{_decibels(row.snr_db):>9}{_decibels(row.search_gain_db):>11}"
            f"{'-' if row.divergence is None else f'{row.divergence:.6f}':>12}"
            for row in self.rows
        ]
        if self.layers:
            lines += ["", "  cosine of the worst output with only one layer quantized:"]
            lines += [_layer_line(row) for row in self.layers]
        return "\n".join(lines)


def decibels(larger: float, smaller: float) -> float | None:
    """10 log10 of a ratio; None where either is 0 or beyond float32."""
    if not (0 < smaller < math.inf and 0 < larger < math.inf):
        return None
    return 10 * math.log10(larger / smaller)


def _layer_line(row: LayerRow) -> str:
    kept = ", kept more precise" if row.raised else ""
    beside = f" (measured with {row.together - 1} beside)" if row.together > 1 else ""
    return f"    {printable(row.name)}: {1 - row.loss:.6f}{beside}{kept}"


def _decibels(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _mean(values: list[tuple[float | None, int]]) -> float | None:
    """Mean of decibels, weighted by size."""
    known = [(value, size) for value, size in values if value is not None]
    total = sum(size for _, size in known)
    return sum(value * size for value, size in known) / total if total else None


def _type_line(name: str, rows: list[Row]) -> str:
    weights = sum(math.prod(row.shape) for row in rows)
    size = sum(row.bytes for row in rows)
    snr = _mean([(row.snr_db, math.prod(row.shape)) for row in rows])
    gain = _mean([(row.search_gain_db, math.prod(row.shape)) for row in rows])
    return (
        f"  {name:<6}{len(rows):>8}{weights:>14,}{8 * size / weights:>13.2f}{size / 1e6:>10.2f}"
        f"{_decibels(snr):>9}{_decibels(gain):>11}"
    )
