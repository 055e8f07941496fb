"""The commands `halfbyte device list` and `show`."""

from __future__ import annotations

import json
import os
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from halfbyte.cli import main
from halfbyte.device import machine
from halfbyte.device import profile as profiles
from halfbyte.device.profile import load_profile, profile_names
from halfbyte.web.wheel import make_wheel

pytestmark = pytest.mark.usefixtures("own")

Capture = pytest.CaptureFixture[str]


def test_list(capsys: Capture) -> None:
    assert main(["device", "list"]) == 0
    heads, *rows = capsys.readouterr().out.splitlines()
    assert heads.split()[:3] == ["device", "title", "cores"]
    assert [row.split()[0] for row in rows] == profile_names()
    [pixel] = [row for row in rows if row.startswith("pixel-6 ")]
    assert pixel.split()[-6:] == ["8", "1236", "30", "8590", "4600", "3.5"]


def test_list_as_json(capsys: Capture) -> None:
    assert main(["device", "list", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [device["name"] for device in result] == profile_names()
    [pixel] = [device for device in result if device["name"] == "pixel-6"]
    assert (pixel["kind"], pixel["cores"], pixel["sustainable_w"]) == ("phone", 8, 3.5)
    assert pixel["int8_gops"] == pytest.approx(2 * 2.802 * 128 + 2 * 2.253 * 64 + 4 * 1.803 * 32)


def test_show(capsys: Capture) -> None:
    assert main(["device", "show", "pixel-6"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Google Pixel 6 (Tensor gs101): a phone of 2021\n8 cores, ")
    assert "chassis warms ambient" in out
    rows = {row.split()[0]: row for row in out.splitlines() if row}
    profile = load_profile("pixel-6")
    for key, number in profile.numbers():
        assert rows[key].endswith(number.source or f"assumed: {number.assumed}")
    assert rows["clusters[0].frequencies_mhz"].split()[1:6] == ["500", "to", "2802", "17", "steps"]
    assert rows["memory.tab_mb"].split()[1:5] == ["1000", "500", "to", "2000"]


def test_show_as_json(capsys: Capture) -> None:
    path = Path(profiles.__file__).with_name("profiles") / "android-go-2gb.toml"
    assert main(["device", "show", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    profile = load_profile("android-go-2gb")
    assert result["name"] == profile.name
    assert result["memory"]["ram_mb"]["value"] == profile.memory.ram_mb.value
    assert set(result["thermal"]["nodes"]) == set(profile.thermal.nodes)
    assert result["derived"]["int8_gops"] == profile.int8_gops


def test_unknown_device_is_reported_in_one_line(capsys: Capture) -> None:
    assert main(["device", "show", "nokia"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: device 'nokia': expected one of ")
    assert err.count("\n") == 1


def test_text_part_of_the_wheel_has_no_devices() -> None:
    names = zipfile.ZipFile(BytesIO(make_wheel(graphs=False))).namelist()
    assert "halfbyte/text/loading.py" in names
    assert not [name for name in names if name.startswith("halfbyte/device/")]


@pytest.mark.parametrize("threads", ["0", "-1", "100000000"])
def test_more_threads_than_the_machine_has(
    threads: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["device", "measure", "-t", threads]) == 2
    assert (
        f"error: --threads {threads}: expected 1 to {os.cpu_count()}, the cores"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(("claimed", "result"), [("1024K", 1.048576), ("515072K", 24.0)])
def test_cache_size_is_limited_by_the_cores(
    claimed: str, result: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Virtual machines report the whole cache of their host."""
    monkeypatch.setattr(machine, "_system", lambda path: claimed if "cache" in path else "")
    cache = machine._cache(2)
    assert cache.value == pytest.approx(result)
    assert bool(cache.assumed) == (result == 24.0)
