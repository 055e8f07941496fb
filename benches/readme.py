"""The README's table: halfbyte and a peer in a few tasks, from the files in benches/results/."""

from __future__ import annotations

from dataclasses import dataclass

from benches.figures import Content, Series, date, digits, machine, series_of

BEGIN, END = "<!-- This table is written by `make report`. -->", "<!-- end -->"


@dataclass(frozen=True)
class Row:
    """A line of the README's table: two series of a bench."""

    task: str
    bench: str
    model: str
    test: str
    ours: str
    peer: str
    name: str  # of the peer

    def cells(self, content: Content) -> list[str]:
        """Our figure, the peer's, the ratio."""
        both = [self._series(content, engine) for engine in (self.ours, self.peer)]
        figures = [self._figure(series) for series in both]
        ratio = f"{both[0].times_as_fast_as(both[1]):.2f}"
        return [self.task, figures[0], f"{self.name} {figures[1]}", ratio]

    def _series(self, content: Content, engine: str) -> Series:
        for s in series_of(content):
            if (s.model, s.test, s.engine, s.threads) == (self.model, self.test, engine, 1):
                return s
        raise SystemExit(
            f"benches/results/{self.bench}.json: the README needs {self.model} {self.test} of "
            f"{engine} on one thread, which is not there"
        )

    def _figure(self, series: Series) -> str:
        return digits(series.speed if self.test[:2] in ("pp", "tg") else 1000 * series.median)


ROWS = (
    Row(
        "SmolLM2-135M's shape in Q4_0, prompt of 128, tokens/s",
        "peers", "135M Q4_0", "pp128", "halfbyte", "llama.cpp", "llama.cpp",
    ),
    Row(
        "the same, decoding", "peers", "135M Q4_0", "tg64", "halfbyte", "llama.cpp", "llama.cpp"
    ),
    Row(
        "the same, decoding in a Chromium tab",
        "peers", "135M Q4_0", "tg64", "relaxed", "wllama-2", "wllama 2",
    ),
    Row(
        "MiniLM in int8, 128 tokens, ms",
        "onnx", "minilm", "int8 by own 1 x 128", "halfbyte", "onnxruntime", "ONNX Runtime",
    ),
    Row(
        "MiniLM in int4, 128 tokens, ms",
        "onnx", "minilm", "int4 by own 1 x 128", "halfbyte", "onnxruntime", "ONNX Runtime",
    ),
    Row(
        "ResNet-34 in float32, ms",
        "onnx", "resnet-34", "fp32 1 image", "halfbyte", "onnxruntime", "ONNX Runtime",
    ),
    Row(
        "MiniLM in int8 in a tab, 128 tokens, ms",
        "onnx-browser", "minilm", "int8 by own 1 x 128", "relaxed", "onnxruntime-web",
        "onnxruntime-web",
    ),
)  # fmt: skip


def table(results: dict[str, Content]) -> str:
    """The README's table, with a line that says where the figures are from."""
    rows = [row for row in ROWS if row.bench in results]
    lines = ["| task | halfbyte | peer | times as fast |", "|---|--:|--:|--:|"]
    lines += [f"| {' | '.join(row.cells(results[row.bench]))} |" for row in rows]
    used = [results[name] for name in dict.fromkeys(row.bench for row in rows)]
    places = dict.fromkeys(f"{machine(content)}, {date(content)}" for content in used)
    return "\n".join([f"On one thread, both sides taking turns; {'; '.join(places)}.", "", *lines])


def text(old: str, results: dict[str, Content]) -> str:
    """The README with a new table."""
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"README.md: expected {BEGIN!r} and then {END!r} around the table")
    return f"{before}{begin}\n{table(results)}\n{end}{after}"
