"""Outputs are whole or absent; devices, pipes and links stay what they are."""

from __future__ import annotations

import fcntl
import io
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from halfbyte import outputs
from halfbyte.errors import OutputError
from halfbyte.outputs import Partial, write_file, write_text, writing


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=[True, False], ids=["nameless", "named"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the system has files without names."""
    if not request.param:
        monkeypatch.delattr(os, "O_TMPFILE")
    return bool(request.param)


@pytest.mark.usefixtures("system")
def test_a_file_is_new_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_text(path, "first")
    assert path.read_bytes() == b"first\n"
    with pytest.raises(ZeroDivisionError):
        write_file(path, lambda file: file.write(b"half of the sec") // 0)
    assert path.read_bytes() == b"first\n"
    write_text(path, "second")
    assert path.read_bytes() == b"second\n"
    assert names(tmp_path) == ["out.json"]


def test_a_file_that_is_being_written_has_no_name(tmp_path: Path, system: bool) -> None:
    with writing(tmp_path / "out") as file:
        file.write(b"x")
        assert len(names(tmp_path)) == (0 if system else 1)
    assert names(tmp_path) == ["out"]


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o660])
def test_permissions_are_kept(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "out"
    path.touch()
    path.chmod(mode)
    write_text(path, "text")
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.usefixtures("system")
def test_a_new_file_has_the_permissions_of_new_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "out", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


def test_links_are_followed(tmp_path: Path) -> None:
    """Also to another folder, and to a file that does not exist yet."""
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there/file")
    for text in ("first", "second"):
        write_text(link, text)
        assert link.is_symlink()
        assert (tmp_path / "there" / "file").read_text() == f"{text}\n"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutputError, match="loop: cannot be written: Too many levels"):
        write_text(tmp_path / "loop", "text")


def test_pipes_are_written_in_place(tmp_path: Path) -> None:
    path, read = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    reader.start()
    write_text(path, "text")
    reader.join(30)
    assert read == [b"text\n"]
    assert path.is_fifo()
    with pytest.raises(OutputError, match="not a regular file"), writing(path, is_model=True):
        pass


@pytest.mark.parametrize(("device", "fails"), [("/dev/null", False), ("/dev/full", True)])
def test_devices_are_written_in_place(tmp_path: Path, device: str, fails: bool) -> None:
    """Through a link, so that a mistake costs the link and not the machine's device."""
    link = tmp_path / "device"
    link.symlink_to(device)
    before = Path(device).stat().st_ino
    if fails:
        with pytest.raises(OutputError, match="device: cannot be written: No space left"):
            write_file(link, lambda file: file.write(bytes(100_000)))
    else:
        write_text(link, "text")
    assert Path(device).is_char_device()
    assert Path(device).stat().st_ino == before
    assert names(tmp_path) == ["device"]


def test_archives_go_to_devices_and_pipes(tmp_path: Path) -> None:
    """They are written from beginning to end, even if a device claims that it can seek."""
    array = np.arange(1000)
    write_file(Path("/dev/null"), lambda file: np.savez(file, x=array))
    path, read = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    reader.start()
    write_file(path, lambda file: np.savez(file, x=array))
    reader.join(30)
    with np.load(io.BytesIO(read[0])) as arrays:
        np.testing.assert_array_equal(arrays["x"], array)


@pytest.mark.parametrize("mode", ["w", "a"])
def test_stdout_is_written_in_place(tmp_path: Path, mode: str) -> None:
    """A pipe or a file, after earlier output, and without losing earlier content."""
    code = "print('one'); from halfbyte.outputs import *; write_text(Path('/dev/stdout'), 'two')"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"one\ntwo\n"
    path = tmp_path / "log"
    path.write_text("zero\n")
    with path.open(mode) as file:
        subprocess.run(command, stdout=file, check=True)
    assert path.read_text() == ("zero\n" if mode == "a" else "") + "one\ntwo\n"


@pytest.mark.parametrize("path", [".", "none/out"])
def test_paths_that_cannot_be_files(tmp_path: Path, path: str) -> None:
    with pytest.raises(OutputError, match=r"cannot be written: (not a regular|No such) file"):
        write_text(tmp_path / path, "text")
    assert names(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A limit on file sizes stops the write as a full disk would."""
    code = (
        "import os, resource, signal, sys; from halfbyte.outputs import *\n"
        "if sys.argv[2] == 'named': del os.O_TMPFILE\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "try: write_text(Path(sys.argv[1]), 'x' * 5000)\n"
        "except OutputError as error: print(error)"
    )
    path = tmp_path / "out"
    for before in (None, "what was there"):
        if before:
            path.write_text(before)
        for kind in ("nameless", "named"):
            command = [sys.executable, "-c", code, path, kind]
            message = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            assert message == f"{path}: cannot be written: File too large\n"
            assert names(tmp_path) == (["out"] if before else [])
    assert path.read_text() == "what was there"


@pytest.mark.usefixtures("system")
def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    """But not a file that another run is writing, nor files with other names."""
    left, held = tmp_path / ".halfbyte-0123456789abcdef.part", tmp_path / ".halfbyte-1.part"
    for path in (left, held, tmp_path / ".other.part"):
        path.write_text("half")
    with held.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_text(tmp_path / "out", "text")
        assert names(tmp_path) == [held.name, ".other.part", "out"]
    write_text(tmp_path / "out", "text")
    assert names(tmp_path) == [".other.part", "out"]


def test_it_is_not_open_when_it_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows, which has no such locks, does not remove an open file."""
    left, unlink = tmp_path / ".halfbyte-0123.part", Path.unlink
    left.write_bytes(b"half")

    def remove(path: Path, missing_ok: bool = False) -> None:
        if any(os.path.realpath(f) == str(path) for f in Path("/proc/self/fd").iterdir()):
            raise PermissionError
        unlink(path, missing_ok)

    monkeypatch.setattr(outputs, "_LOCKS", False)
    monkeypatch.setattr(Path, "unlink", remove)
    write_text(tmp_path / "out", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.usefixtures("system")
def test_two_runs_in_one_folder(tmp_path: Path) -> None:
    with Partial(tmp_path) as first, Partial(tmp_path) as second:
        first.file.write(b"1")
        second.file.write(b"2")
        second.place(tmp_path / "two")
        first.place(tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == b"1"
    assert (tmp_path / "two").read_bytes() == b"2"
    assert names(tmp_path) == ["one", "two"]
