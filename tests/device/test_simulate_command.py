"""``halfbyte simulate``: text, JSON, plots and errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tests.device.devices import exactly, small_plan

from halfbyte.cli import main
from halfbyte.device import plot
from halfbyte.device.profile import load_profile
from halfbyte.device.simulate import simulate
from halfbyte.device.speed import Tokens

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(storyteller: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command on the shipped model; returns exit code, stdout and stderr."""

    def command(*words: str, model: Path = storyteller) -> tuple[int, str, str]:
        short = ("--minutes", "1", "--draws", "5")
        code = main(["simulate", str(model), *short, *words])
        out = capsys.readouterr()
        return code, out.out, out.err

    return command


def test_text_output(run: Run) -> None:
    code, out, _ = run("--device", "pixel-6", "--ambient", "30", "--minutes", "2")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("storyteller.bin on Google Pixel 6 (Tensor gs101): 4 threads, power")
    assert "air of 30 C; 5 draws" in lines[0]
    assert any(line.startswith("sustained (last fifth)") for line in lines)
    assert [line.split()[0] for line in lines[-3:]] == ["min", "1", "2"]
    assert "warning" not in out
    assert "of the device's numbers " in out
    assert "10 to 90 % of temperatures: a guess" in out


def test_json_output(run: Run) -> None:
    code, out, _ = run("--device", "galaxy-s25", "--workload", "chat", "--json", "--seed", "4")
    result = json.loads(out)
    assert code == 0
    assert (result["device"], result["governor"], result["seed"]) == (
        "galaxy-s25", "power-allocator", 4,
    )  # fmt: skip
    assert result["ambient_c"] == 25
    assert result["numbers"]["assumed"] > result["numbers"]["sourced"] > 10
    assert "% of the ticks" in result["calibrated"]
    assert result["summary"]["throttle_s"]["high"] is None
    assert result["summary"]["sustained_tokens_s"]["median"] > 0
    series = result["series"]
    assert {"speed", "power", "battery", "chassis", "oryon-prime"} <= set(series)
    assert len(series["speed"]["median"]) == len(result["seconds"]) == 120
    assert series["chassis"]["unit"] == "C"


@pytest.mark.parametrize(
    ("suffix", "begin"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")]
)
def test_a_plot(suffix: str, begin: bytes, run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"picture{suffix}"
    path.write_bytes(b"before")
    assert run("--device", "raspberry-pi-4", "--plot", str(path), "--force")[0] == 0
    assert path.read_bytes().startswith(begin)
    assert path.stat().st_size > 10_000
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("device", "guess"), [("galaxy-s25", False), ("pixel-6", True)])
def test_bands_that_are_a_guess_are_hatched(device: str, guess: bool, storyteller: Path) -> None:
    task = Tokens(small_plan(storyteller))
    figure = plot.draw(simulate(task, load_profile(device), minutes=0.5, draws=3))
    temperatures, speed = figure.axes[1], figure.axes[0]
    assert {bool(band.get_hatch()) for band in temperatures.collections} == {guess}
    assert not speed.collections[0].get_hatch()


def test_an_impossible_plot_is_refused_before_the_simulation(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: Any, **__: Any) -> Any:
        raise AssertionError("it ran")

    monkeypatch.setattr("halfbyte.cli.simulate.simulate", none)
    code, _, error = run("--device", "pixel-6", "--plot", str(tmp_path / "a.jpeg"))
    assert (code, error) == (
        2, f"error: {tmp_path}/a.jpeg: expected a name in .svg, .png, .pdf, found .jpeg\n",
    )  # fmt: skip
    assert "found no suffix" in run("--device", "pixel-6", "--plot", str(tmp_path / "a"))[2]
    code, _, error = run("--device", "pixel-6", "--plot", str(tmp_path / "no" / "a.svg"))
    assert (code, error) == (
        2, f"error: {tmp_path}/no/a.svg: cannot be written: no folder {tmp_path}/no\n",
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, error = run("--device", "pixel-6", "--plot", str(tmp_path / "a.svg"))
    assert code == 2
    assert error == "error: a plot needs matplotlib: pip install 'halfbyte[plot]'\n"


def test_a_failed_plot_keeps_the_old_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    def breaks(self: Figure, file: BinaryIO, **_: Any) -> None:
        file.write(b"part")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", breaks)
    path = tmp_path / "a.svg"
    path.write_bytes(b"before")
    code, _, error = run("--device", "pixel-6", "--plot", str(path), "--force")
    assert (code, error) == (2, f"error: {path}: cannot be written: No space left on device\n")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_matplotlib_is_imported_only_for_plots(storyteller: Path) -> None:
    import subprocess

    code = (
        "import sys; from halfbyte.cli import main; main(['simulate', sys.argv[1], '--device', "
        "'pixel-6', '--minutes', '0.1', '--draws', '2']); assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(storyteller)], check=True, timeout=120)


def write_phone(folder: Path, app_mb: float) -> Path:
    """Write the Pixel 6's profile with this limit for an app."""
    from halfbyte.device.toml_writer import to_toml

    phone = load_profile("pixel-6")
    memory = replace(phone.memory, app_mb=exactly(float(app_mb)))
    path = folder / "phone.toml"
    path.write_text(to_toml(replace(phone, name="phone", memory=memory)))
    return path


def test_a_model_that_does_not_fit(run: Run, storyteller: Path, tmp_path: Path) -> None:
    code, out, error = run("--device", str(write_phone(tmp_path, 1)))
    assert code == 1
    assert out == ""
    assert f"error: {storyteller}: expected to need at most 1 MB, which an app on phone" in error
    assert "MB; no --level fits, but a smaller context may; `halfbyte fit` says" in error
    needs = small_plan(storyteller).total / 1e6
    options = ("--context", "256", "--cache", "f32")
    code, out, _ = run("--device", str(write_phone(tmp_path, needs + 100)), *options)
    assert (code, "warning" in out) == (0, False)


def test_a_model_that_fits_at_another_level(run: Run, storyteller: Path, tmp_path: Path) -> None:
    from halfbyte.text.opening import open_model
    from halfbyte.text.planning import LEVELS, plan

    plans = {name: plan(open_model(storyteller), LEVELS[name]) for name in LEVELS}
    own = {name: (p.total - p.memory["weights (mapped)"]) / 1e6 for name, p in plans.items()}
    assert own["aggressive"] < own["basic"] == own["baseline"]
    phone = write_phone(tmp_path, (own["aggressive"] + own["baseline"]) / 2)
    code, out, error = run("--device", str(phone), "--json")
    assert (code, out) == (1, "")
    assert f"which an app on phone may take, found {own['baseline']:.0f} MB; --level " in error
    assert f"--level aggressive needs {own['aggressive']:.0f} MB; `halfbyte fit`" in error
    assert run("--device", str(phone), "--level", "aggressive")[0] == 0


def test_dropped_pages_are_read_again_as_in_fit(
    run: Run, storyteller: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from halfbyte.text.opening import open_model
    from halfbyte.text.planning import LEVELS, plan

    planned = plan(open_model(storyteller), LEVELS["basic"])
    phone = write_phone(tmp_path, (planned.total - planned.memory["weights (mapped)"] / 2) / 1e6)
    main(["fit", str(storyteller), "--device", str(phone), "--level", "basic", "--json"])
    fits = json.loads(capsys.readouterr().out)["asked"]
    assert (fits["fits"], fits["from_storage"]) == (True, True)
    words = ("--device", str(phone), "--level", "basic", "--draws", "200", "--json")
    result = json.loads(run(*words)[1])
    assert result["warning"].endswith("weights are read from storage in every run")
    assert result["context"] == planned.settings.context
    speed = result["summary"]["first_minute_tokens_s"]["median"]
    assert speed == pytest.approx(fits["decode"]["median"], rel=0.1)


def test_invalid_input(run: Run) -> None:
    assert "expected one of ['pixel-6'" in run("--device", "pixel-60")[2]
    assert (
        "expected continuous, chat, a rate such as 30/s, or a"
        in run("--device", "pixel-6", "--workload", "x")[2]
    )
    assert "ambient nan: expected" in run("--device", "pixel-6", "--ambient", "nan")[2]
    assert run("--device", "pixel-6", "--minutes", "1e9")[0] == 2
    code, _, error = run("--device", "pixel-6", "--seed", "-1")
    assert (code, error) == (2, "error: --seed -1: expected 0 or more\n")
