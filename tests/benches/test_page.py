"""The HTML report: one file, whose charts have what the figures say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from benches import charts, page, suite_table
from benches.charts import Axis, Line
from benches.figures import Content, Series, pytest_json
from benches.page import curves
from benches.yardstick import DOT_UNITS, READ_BYTES

MEMORY = READ_BYTES / 20e9  # seconds at 20 GB/s
DOT = 2 * DOT_UNITS * 512 * 8 * 2 * 256 / 400e9  # at 400 GOP/s


def product(model: str, test: str, seconds: float, yardstick: str, beside: float) -> Series:
    more = {"bytes": 1e6, "operations": 2e6, "case": "c"}
    return Series(
        model, "native", test, 1, [seconds] * 5, more, source="benches/products",
        yardstick=yardstick, beside=[beside] * 5,
    )  # fmt: skip


def session(date: str = "2026-11-24T00:00:00+00:00", factor: float = 1.0) -> Content:
    failed = Series("m", "openvino", "pp", more={"reason": "ended with -11 <SIGSEGV>"})
    series = [
        product("Q4_0 576x576", "1 row", 1e-5 * factor, "memory", MEMORY),
        product("F16 576x576", "128 rows", 1e-4, "dot", DOT),
        *(
            Series("Q4_0", "native", "1 row, threads", n, [1.0 / n] * 5, source="benches/backends")
            for n in (1, 2)
        ),
        *(
            Series("135M", "relaxed", "tg32, workers", n, [1.0] * 5, source="benches/browser")
            for n in (1, 2)
        ),
        *(
            Series("135M", "halfbyte", f"batch of {n}", 1, [1.0] * 5, source="benches/models")
            for n in (1, 8)
        ),
        Series("m", "halfbyte", "pp", 1, [1.0] * 5, source="benches/peers"),
        Series("m", "llama.cpp", "pp", 1, [2.0] * 5, source="benches/peers"),
        Series("m", "apart", "rope", 1, [1.0] * 5, source="benches/fusions"),
        Series("m", "fused", "rope", 1, [0.5] * 5, source="benches/fusions"),
    ]  # fmt: skip
    failed.source = "benches/peers"
    return {**pytest_json([*series, failed], "benches"), "datetime": date}


def svgs(text: str) -> list[ET.Element]:
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text)]  # noqa: S314


def test_nothing_outside_is_asked_for() -> None:
    text = page.page(session())
    assert not re.search(r"(src|href)=\"(?!#)|url\(|@import|<script|<link", text)


def test_peaks_come_from_the_yardsticks() -> None:
    peaks = curves.peaks(
        [product("a", "1 row", 1, "memory", MEMORY), product("b", "", 1, "dot", DOT)]
    )
    assert peaks == pytest.approx({"memory": 20, "dot": 400})


def test_sections() -> None:
    text = page.page(session(), [session("2026-11-23T00:00:00+00:00")])
    assert re.findall(r"<h2 id=\"(.*?)\"", text) == [
        "peers", "roofline", "scaling", "side-by-side", "over-time", "all-cases"
    ]  # fmt: skip
    roofline, threads, workers, batches, history = svgs(text)
    titles = [title.text for title in roofline.iter("title")]
    assert titles == ["Q4_0 576x576, 1 row: 200 GOP/s", "F16 576x576, 128 rows: 20 GOP/s"]
    assert [t.text for t in batches.iter("title")] == ["1: 1 tokens/s", "8: 8 tokens/s"]
    assert len(list(threads.iter("circle"))) == len(list(workers.iter("circle"))) == 2
    assert len(list(history.iter("circle"))) == 2  # of products only: the others lack a yardstick


def test_a_failed_peer_says_why() -> None:
    text = page.page(session())
    assert "ended with -11 &lt;SIGSEGV&gt;" in text
    assert "<SIGSEGV>" not in text


def test_peers_have_a_mean() -> None:
    """Of the tests that both ran; builds of halfbyte are not peers."""
    peers, rest = page.page(session()).split("Roofline</h2>")
    assert "<td>llama.cpp</td><td>peers</td><td>1</td>" in peers
    assert '<span class="ahead"><b>2</b></span></td><td>2</td><td>2</td>' in peers
    assert "apart" not in peers
    assert "<p>m, rope</p>" in rest


def test_peers_are_compared_with_what_does_the_same() -> None:
    """llama.cpp searches the scales of some types, which the plain encoder does not."""
    series = [
        Series("Q4_K", engine, "encode", 1, [seconds] * 5, {"searches": True}, source="benches/x")
        for engine, seconds in (("plain", 1.0), ("search", 4.0), ("llama.cpp", 8.0))
    ]
    text = page.page(pytest_json(series, "benches"))
    assert '<span class="ahead"><b>2</b></span>' in text
    assert suite_table.table(series).endswith("  2.00 |")


def test_a_peer_without_figures_has_a_row() -> None:
    text = page.page(session()).split("Roofline</h2>")[0]
    row = '<td class="why" colspan="4">ended with -11 &lt;SIGSEGV&gt;</td>'
    assert f"<tr><td>openvino</td><td>peers</td>{row}</tr>" in text


def test_history_is_relative_to_the_first() -> None:
    text = page.page(session(factor=1.21), [session("2026-11-23T00:00:00+00:00")])
    assert "2026-11-24T00:00: 1.100" in text  # the geometric mean of 1.21 and 1


def test_empty_sections_are_left_out() -> None:
    text = page.page(pytest_json([Series("m", "e", "t", 1, [1.0])], "benches"))
    assert re.findall(r"<h2 id=\"(.*?)\"", text) == ["all-cases"]


def test_noisy_cases_are_marked() -> None:
    noisy = Series("m", "e", "t", 1, [1.0, 2.0, 1.0, 2.0])
    assert 'class="mark"' in page.page(pytest_json([noisy], "benches"))


def test_axes() -> None:
    log = Axis("x", 1, 100)
    assert [log.place(v) for v in (1, 10, 100)] == [0, 0.5, 1]
    assert log.ticks() == [1, 2, 5, 10, 20, 50, 100]
    assert Axis("x", 1e-3, 1e3).ticks() == pytest.approx([1e-3, 1e-2, 0.1, 1, 10, 100, 1000])
    even = charts.around("x", [1.0, 2.0], log=False)
    assert (even.low, even.high) == pytest.approx((0.9, 2.1))
    assert even.ticks() == pytest.approx([1, 1.2, 1.4, 1.6, 1.8, 2])
    assert charts.around("threads", [1, 2], log=False, whole=True).ticks() == [1, 2]
    assert Axis("y", 8, 600).ticks() == [10, 20, 50, 100, 200, 500]
    assert charts.around("session", [1.0, 3.0], log=False).ticks() == [1, 2, 3]


def test_points_are_inside_the_frame() -> None:
    axis = charts.around("x", [1.0, 1000.0])
    line = Line("<a & b>", [(1, 1000, "p"), (1000, 1, "q")])
    [svg] = svgs(charts.chart("c", axis, axis, [line]))
    for circle in svg.iter("circle"):
        assert charts.LEFT < float(circle.get("cx", "0")) < charts.WIDTH - charts.RIGHT
        assert charts.TOP < float(circle.get("cy", "0")) < charts.HEIGHT - charts.BOTTOM
