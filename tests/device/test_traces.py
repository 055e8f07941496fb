"""Reading recordings: the contents of files, and errors."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.device import recordings
from tools.thermal import fitting
from tools.thermal.traces import read_recording

from halfbyte.errors import FormatError

Arrays = dict[str, NDArray[Any]]
COUNT = len(recordings.ZONES)


@pytest.fixture
def content() -> Arrays:
    return recordings.arrays(recordings.phone(np.random.default_rng(3), fitting.GUESS, 600))


def test_written_recordings_are_read_back(tmp_path: Path, content: Arrays) -> None:
    recording = read_recording(recordings.save(tmp_path / "a.npz", content))
    assert tuple(recording.zones) == recordings.ZONES
    rows = content["predictions"].reshape(-1, COUNT, len(recordings.COLUMNS))
    for i, zone in enumerate(recordings.ZONES):
        np.testing.assert_array_equal(recording.zones[zone], rows[:, i, 3])
    np.testing.assert_array_equal(recording.air_c, rows[:, 0, 4])
    assert recording.tick_s == pytest.approx(1.0, abs=0.01)  # stamps of 128 s, 600 ticks


def test_recordings_start_and_end_with_whole_ticks(tmp_path: Path, content: Arrays) -> None:
    content["predictions"] = content["predictions"][4:-2]
    recording = read_recording(recordings.save(tmp_path / "a.npz", content))
    assert {len(zone) for zone in recording.zones.values()} == {598}
    assert recording.zones["BATTERY"][0] == content["predictions"][3 + 3, 3]


def test_duration_of_a_tick_follows_from_timestamps(tmp_path: Path, content: Arrays) -> None:
    stamps = content["predictions"][:, 0].astype(np.float64) - recordings.FIRST_STAMP
    content["predictions"][:, 0] = recordings.FIRST_STAMP + 2 * stamps
    path = recordings.save(tmp_path / "a.npz", content)
    assert read_recording(path).tick_s == pytest.approx(2.0, abs=0.02)
    content["predictions"][:, 0] = recordings.FIRST_STAMP
    assert read_recording(recordings.save(path, content)).tick_s == 1.0


def test_a_gap_of_stamps_is_refused(tmp_path: Path, content: Arrays) -> None:
    ticks = np.repeat(np.arange(600), COUNT)

    def with_gap(seconds: int) -> Path:
        stamps = recordings.FIRST_STAMP + ticks + seconds * (ticks >= 300)
        content["predictions"][:, 0] = stamps.astype(np.float32)
        return recordings.save(tmp_path / "a.npz", content)

    assert read_recording(with_gap(30)).tick_s == pytest.approx(1.07, abs=0.02)
    for seconds in (200, 5000):
        with pytest.raises(FormatError, match=r"a\.npz: t_predict: .* without a gap, found \d+ s"):
            read_recording(with_gap(seconds))


def test_nothing_is_unpickled(tmp_path: Path, content: Arrays) -> None:
    content["zone_names"] = np.array([Trap()] * COUNT, dtype=object)
    with pytest.raises(FormatError, match=r"a.npz: .*zone_names"):
        read_recording(recordings.save(tmp_path / "a.npz", content))
    assert not Trap.sprung


class Trap:
    """Reports whether it was unpickled."""

    sprung = False

    def __reduce__(self) -> tuple[Any, ...]:
        return spring, ()


def spring() -> None:
    Trap.sprung = True


def edited(content: Arrays, row: int, column: str, value: float) -> Arrays:
    content["predictions"][row, recordings.COLUMNS.index(column)] = value
    return content


def without(content: Arrays, name: str) -> Arrays:
    return {key: value for key, value in content.items() if key != name}


REFUSED: dict[str, Any] = {
    "none named predictions": lambda c: without(c, "predictions"),
    "none named zone_names": lambda c: without(c, "zone_names"),
    "expected T0 among": lambda c: c | {
        "column_names": np.array(["T1" if name == "T0" else name for name in recordings.COLUMNS])},
    r"expected floats \[rows, 6\], found float32 \[4200, 5\]": lambda c: c | {
        "predictions": c["predictions"][:, :5]},
    r"expected floats .* found int64 \[4200, 6\]": lambda c: c | {
        "predictions": c["predictions"].astype(np.int64)},
    r"expected floats .* found float32 \[25200\]": lambda c: c | {
        "predictions": c["predictions"].ravel()},
    "column_names: expected a list of different names": lambda c: c | {
        "column_names": np.array(["T0"] * 6)},
    "zone_names: expected a list of different names, found float64": lambda c: c | {
        "zone_names": np.arange(7.0)},
    "zone_names: expected a list of different names, found <U7 ": lambda c: c | {
        "zone_names": np.array("CPU_BIG")},
    "row 15: T0: expected a finite number, found nan": lambda c: edited(c, 15, "T0", np.nan),
    "row 8: zone_id: expected a finite": lambda c: edited(c, 8, "zone_id", np.inf),
    "row 9: expected zone 2 in its turn, found 3": lambda c: edited(c, 9, "zone_id", 3),
    "row 9: expected zone 2 in its turn, found 2.5": lambda c: edited(c, 9, "zone_id", 2.5),
    "row 70: expected zone 0 in its turn, found 1": lambda c: c | {
        "predictions": np.delete(c["predictions"], 70, axis=0)},
    "expected two ticks or more of 7 zones, found 13 rows": lambda c: c | {
        "predictions": c["predictions"][:13]},
    "expected two ticks or more of 7 zones, found 0 rows": lambda c: c | {
        "predictions": c["predictions"][:0]},
    "expected temperatures from -60 to 200 C, found 1000": lambda c: edited(c, 9, "T0", 1000),
    "from -60 to 200 C, found -273": lambda c: edited(c, 9, "T_ambient", -273),
    "t_predict: expected ticks of up to 60 s": lambda c: edited(c, 0, "t_predict", 0) | {
        "predictions": c["predictions"] * np.array([-1, 1, 1, 1, 1, 1], np.float32)},
}  # fmt: skip


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused(sentence: str, tmp_path: Path, content: Arrays) -> None:
    path = recordings.save(tmp_path / "a.npz", REFUSED[sentence](content))
    with pytest.raises(FormatError, match=f"a.npz: .*{sentence}") as caught:
        read_recording(path)
    assert "\n" not in str(caught.value)


def header(shape: tuple[int, ...], kind: str = "<f4") -> bytes:
    file = io.BytesIO()
    described: Any = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, described)
    return file.getvalue()


def test_absurd_sizes_take_no_memory(tmp_path: Path, content: Arrays) -> None:
    path = recordings.save(tmp_path / "a.npz", without(content, "predictions"))
    for shape, body in (((10**12, 6), b""), ((2**40, 2**40), b""), ((10**7, 6), bytes(10**7 * 24))):
        bomb = tmp_path / "bomb.npz"
        bomb.write_bytes(path.read_bytes())
        with zipfile.ZipFile(bomb, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("predictions.npy", header(shape) + body)
        with pytest.raises(FormatError, match=r"bomb.npz: .* predictions: .* at most 67108864"):
            read_recording(bomb)


def test_files_that_are_not_npz(tmp_path: Path, content: Arrays) -> None:
    whole = recordings.save(tmp_path / "a.npz", content).read_bytes()
    rng = np.random.default_rng(8)
    damaged = [b"", b"PK", b"\x93NUMPY", whole[: len(whole) // 2], whole[:-1], bytes(1000)]
    for _ in range(60):
        broken = bytearray(whole)
        for at in rng.integers(len(whole), size=8):
            broken[at] = rng.integers(256)
        damaged.append(bytes(broken))
    path, refused = tmp_path / "b.npz", 0
    for data in damaged:
        path.write_bytes(data)
        try:
            read_recording(path)  # damage may have missed all that is read
        except FormatError as error:
            assert str(error).startswith(f"{path}: "), error  # noqa: PT017
            refused += 1
    assert refused > 40
    for missing in (tmp_path / "none.npz", tmp_path):
        with pytest.raises(FormatError, match="cannot be read"):
            read_recording(missing)


def test_damaged_arrays(tmp_path: Path, content: Arrays) -> None:
    """Damaged headers and bytes in a valid archive are refused in one line, or read."""
    rng, path, refused = np.random.default_rng(2), tmp_path / "b.npz", 0
    content["predictions"] = content["predictions"][:70]
    whole = {}
    for name, values in content.items():
        file = io.BytesIO()
        np.save(file, values)
        whole[f"{name}.npy"] = file.getvalue()
    for _ in range(400):
        damaged = {name: bytearray(values) for name, values in whole.items()}
        chosen = damaged[list(damaged)[rng.integers(3)]]
        for at in rng.integers(128 if rng.random() < 0.8 else len(chosen), size=2):
            chosen[at] = rng.integers(32, 127)
        with zipfile.ZipFile(path, "w") as archive:
            for name, values in damaged.items():
                archive.writestr(name, bytes(values))
        try:
            read_recording(path)
        except FormatError as error:
            assert str(error).startswith(f"{path}: "), error  # noqa: PT017
            assert "\n" not in str(error), error  # noqa: PT017
            refused += 1
    assert 200 < refused < 400


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "ticks"), [("s25_20251126_112051", 1428), ("s25_stress_20251126_142908", 1025)]
)
def test_real_recordings(data: Path, name: str, ticks: int) -> None:
    recording = read_recording(data / f"thermal/{name}.npz")
    assert tuple(recording.zones) == recordings.ZONES
    assert {len(zone) for zone in recording.zones.values()} == {ticks}
    assert 1.0 < recording.tick_s < 1.05
    # The recorder's air follows the battery, not a room: see traces.py
    warmer = recording.zones["BATTERY"] - recording.air_c
    assert np.median(warmer) == pytest.approx(2.2, abs=0.3)
