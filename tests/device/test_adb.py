"""`halfbyte device measure --adb`, with a fake adb."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from tests.device.devices import program
from tests.device.phones import DEVICES, SERIAL, write_phone

from halfbyte.cli import main
from halfbyte.device import adb
from halfbyte.device.profile import load_profile, user_folder

pytestmark = pytest.mark.usefixtures("own")

Capture = pytest.CaptureFixture[str]
MEASURE = ["device", "measure", "--adb", "--seconds", "1", "--like", "pixel-6"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    write_phone(folder)
    return folder


@pytest.fixture
def phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its folder."""
    folder = tmp_path / "phone"
    monkeypatch.setenv("PATH", str(write_phone(folder)))
    monkeypatch.setattr(adb, "_FILL_BYTES", 1 << 20)
    return folder


def write(phone: Path, path: str, text: str) -> None:
    (phone / path).write_text(text)


def refused(capsys: Capture, *more: str) -> str:
    """The message, when nothing is written."""
    assert main([*MEASURE, *more]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.strip().splitlines()[-1].startswith("error: ")
    assert not user_folder().is_dir() or not list(user_folder().iterdir())
    return err


def test_a_phone(phone: Path, capsys: Capture) -> None:
    assert main(["device", "measure", "--adb", "--seconds", "6"]) == 0
    out = capsys.readouterr().out
    path = user_folder() / "my-pixel-6.toml"
    assert out.startswith(f"Google Pixel 6, wrote {path}\n")
    assert list(user_folder().iterdir()) == [path]
    rows = [line.split() for line in out.splitlines()]
    assert ["BIG", "38.0", "56.0", "90"] in rows
    assert ["4,", "5", "2253", "2252"] in rows
    assert "the battery gives 1.1 W at rest, 6.2 W with all cores busy" in out
    profile = load_profile("my-pixel-6")
    assert (profile.kind, profile.cores, profile.instructions) == ("phone", 8, "dotprod")
    names = [(c.name, c.cores.value, c.frequencies_mhz.values[-1]) for c in profile.clusters]
    assert names == [("cores-6-7", 2, 2802.0), ("cores-4-5", 2, 2253.0), ("cores-0-3", 4, 1803.0)]
    own = load_profile("pixel-6")
    for cluster, known in zip(profile.clusters, own.clusters, strict=True):
        assert cluster.int8_ops_per_cycle == known.int8_ops_per_cycle
        assert cluster.voltages_mv.values[-1] == pytest.approx(known.voltages_mv.values[-1], 1e-3)
    assert profile.thermal.trips[0].start_c.value == 43
    assert profile.thermal.trips[0].full_c.value == 47
    assert profile.power.idle_w.value == 1.09
    assert profile.battery is not None
    assert profile.battery.capacity_wh.value == 18
    assert profile.memory.ram_mb.value == 7869
    full = sum(cluster.full_w for cluster in profile.clusters)
    assert 5 < full < 10
    for key, number in profile.numbers():
        read = number.source.startswith("halfbyte device measure --adb, ")
        expected = key.startswith("clusters") and key.endswith(("cores", "frequencies_mhz"))
        if key in ("memory.ram_mb", "power.idle_w", "battery.capacity_wh") or expected:
            assert read, key
        elif not key.endswith("ops_per_cycle") and "trips" not in key:
            assert read == (key == "thermal.allocator.control_c"), key
            assert read or number.assumed, key


def test_its_own_profile_is_replaced_and_no_other(phone: Path, capsys: Capture) -> None:
    assert main([*MEASURE, "--name", "one", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cores"] == 8
    assert main([*MEASURE, "--name", "one", "--like", "oneplus-12"]) == 0
    assert "as oneplus-12: " in load_profile("one").memory.storage_gb_s.assumed
    path = user_folder() / "one.toml"
    path.write_text("mine")
    capsys.readouterr()
    assert main([*MEASURE, "--name", "one"]) == 2
    assert "halfbyte did not write it" in capsys.readouterr().err
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ("List of devices attached\n\n", "expected an attached phone, found none"),
        ("* daemon not running; starting now at tcp:5037\n* daemon started successfully\n"
         f"List of devices attached\n{SERIAL}\tunauthorized\n", "allow this computer"),
        (f"List of devices attached\n{SERIAL}\toffline\n", "connect it again"),
        ("List of devices attached\n????????????\tno permissions (missing udev rules?); see [http:"
         "//developer.android.com/tools/device.html]\n", "found 'no permissions (missing udev"),
        (DEVICES.strip() + "\nemulator-5554\tdevice\n",
         f"expected one phone, found {SERIAL}, emulator-5554: choose by --serial"),
        ("\x1b[2Jgarbage", "expected a list of devices from adb, found '\\\\x1b[2Jgarbage'"),
        ("", "expected a list of devices from adb, found 'nothing'"),
    ],
)  # fmt: skip
def test_phones_that_are_not_ready(
    devices: str, message: str, phone: Path, capsys: Capture
) -> None:
    write(phone, "devices", devices)
    assert message in refused(capsys)


def test_one_of_several(phone: Path, capsys: Capture) -> None:
    write(phone, "devices", DEVICES.strip() + "\nemulator-5554\toffline\n")
    assert "expected one of the attached: " in refused(capsys, "--serial", "other")
    assert "connect it again" in refused(capsys, "--serial", "emulator-5554")
    assert main([*MEASURE, "--serial", SERIAL]) == 0


def test_without_adb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "expected the command adb on the PATH, found none" in refused(capsys)
    program(tmp_path, "adb", "exit 1")
    assert "expected a list of devices from adb" in refused(capsys)


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_a_phone_that_leaves(calls: int, phone: Path, capsys: Capture) -> None:
    write(phone, "leaves", str(calls))
    message = refused(capsys)
    assert (
        "expected the phone to stay connected until its last line, found 'error: closed'" in message
    )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("yes", "expected an answer of at most 4,194,304 bytes within 60 s, found 4,194,304"),
        ("echo '== end'", "expected Android's ro.product.model and others, found 'nothing'"),
        ("printf '\\377\\0== end'", "expected Android's ro.product.model and others"),
    ],
)
def test_answers_of_no_phone(answer: str, message: str, phone: Path, capsys: Capture) -> None:
    program(phone / "bin", "adb", f'[ "$1" = devices ] && cat {phone}/devices && exit; {answer}')
    assert message in refused(capsys)


@pytest.mark.parametrize("seconds", [".", "1.2.3", "0"])
def test_times_of_no_dd(seconds: str, phone: Path) -> None:
    """The bandwidth is assumed then."""
    size = 16 << 20
    program(phone / "phone-bin", "dd", f"echo '{size} bytes (16 M) copied, {seconds} s, 2 G/s'")
    assert main(MEASURE) == 0
    assert "as pixel-6: " in load_profile("my-pixel-6").memory.bandwidth_gb_s.assumed


def test_a_phone_that_hides_everything(phone: Path, capsys: Capture) -> None:
    """Only its name is left: all numbers are assumed."""
    for name in ("sys", "proc"):
        shutil.rmtree(phone / name)
    (phone / "thermalservice").unlink()
    program(phone / "phone-bin", "dd", "echo 'dd: not found'; exit 127")
    program(phone / "phone-bin", "sleep", "exit 0")
    assert main(MEASURE) == 0
    out = capsys.readouterr().out
    assert "no thermal zone can be read" in out
    assert "0 of " in out
    profile = load_profile("my-pixel-6")
    assert all(number.assumed for _, number in profile.numbers())


def test_instructions_follow_from_the_cores(phone: Path) -> None:
    """Oryon has SMMLA, too, which does no more than its SDOT."""
    info = phone / "proc" / "cpuinfo"
    text = info.read_text()
    answers = {}
    for maker in ("0x41", "0x51"):
        for more in ("", " i8mm"):
            changed = text.replace("asimddp", f"asimddp{more}")
            info.write_text(changed.replace("implementer\t: 0x41", f"implementer\t: {maker}"))
            assert main(MEASURE) == 0
            answers[maker, more] = load_profile("my-pixel-6").instructions
    assert answers == {
        ("0x41", ""): "dotprod", ("0x41", " i8mm"): "i8mm",
        ("0x51", ""): "dotprod-wide", ("0x51", " i8mm"): "dotprod-wide",
    }  # fmt: skip


def test_a_phone_that_is_charged(phone: Path, capsys: Capture) -> None:
    write(phone, "sys/class/power_supply/battery/status", "Charging")
    assert main(MEASURE) == 0
    assert "it is charged, or its maker hides it" in capsys.readouterr().out
    assert load_profile("my-pixel-6").power.idle_w.assumed


@pytest.mark.parametrize("seed", range(6))
def test_garbled_answers(seed: int, phone: Path, capsys: Capture) -> None:
    """Whatever it says, there is a valid profile or an error of one line."""
    rng = random.Random(seed)
    program(phone / "phone-bin", "sleep", "exit 0")
    paths = [p for p in phone.rglob("*") if p.is_file() and "bin" not in str(p.parent.name)]
    values = ["-1", "0", "9" * 14, "1e9", "NaN", "\x1b[2J", "7 7 7", "999999", "\n\n: :", "3000"]
    for path in rng.sample(sorted(paths), 12):
        if path.name != "devices":
            text = path.read_text()
            path.write_text(text.replace(rng.choice(text.split() or ["x"]), rng.choice(values)))
    code = main(MEASURE)
    out, err = capsys.readouterr()
    assert "\x1b[2J" not in out + err
    if code:
        assert (code, err.strip().splitlines()[-1][:7]) == (2, "error: ")
        assert not list(user_folder().glob("*"))
    else:
        [path] = user_folder().iterdir()
        load_profile(path.stem)


def test_options_for_the_other_machine(capsys: Capture) -> None:
    for words, message in (
        (["--serial", "x"], "--serial: expected --adb too"),
        (["--adb", "-t", "2"], "--threads: for this machine only"),
        (["--adb", "--seconds", "0"], "--seconds 0: expected 1 to 3600"),
        (["--adb", "--like", "nokia"], "device 'nokia': expected one of "),
        (["--adb", "--name", "No!"], "--name 'No!': expected up to 64"),
    ):
        assert main(["device", "measure", *words]) == 2
        assert message in capsys.readouterr().err
