"""``halfbyte pull`` from a local hub, in new processes, as its library requires."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.formats.files import write_small
from tests.formats.folders import write_folder
from tests.support.hub_server import COMMIT, TOKEN, Hub, Repository, serving
from tests.support.sampled import often
from tests.support.tools import largest

from halfbyte.download.choice import Reference, choose, parse
from halfbyte.errors import HalfbyteError

Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]
COMMAND = "import sys; from halfbyte.cli import main; sys.exit(main())"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as server:
        yield server


@pytest.fixture
def run(hub: Hub, tmp_path: Path) -> Run:
    """Run `halfbyte` with arguments and this test's cache."""

    def command(*arguments: str | Path, **environment: str) -> Done:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
        own = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "cache"),
            "HF_HUB_ETAG_TIMEOUT": "5",
        }
        return subprocess.run(
            [sys.executable, "-c", COMMAND, *map(str, arguments)],
            capture_output=True, text=True, check=False, env=clean | own | environment,
        )  # fmt: skip

    return command


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def folder_files(tmp_path: Path, shards: int = 1) -> dict[str, bytes]:
    return files(write_folder(tmp_path / "made", shards=shards))


JUNK = {
    "README.md": b"# A model", "picture.png": b"png", "onnx/model.onnx": b"onnx",
    "original/consolidated.00.pth": b"pth", "pytorch_model.bin": b"bin", "model.gguf": b"GGUF",
    "tf_model.h5": b"h5", "flax_model.msgpack": b"msgpack", "original/config.json": b"{}",
}  # fmt: skip


@pytest.mark.parametrize("shards", often([1, 3], [3]))
def test_a_pulled_model_runs(hub: Hub, run: Run, shards: int, tmp_path: Path) -> None:
    output = folder_files(tmp_path, shards)
    hub.repositories["org/model"] = Repository(output | JUNK)
    done = run("pull", "org/model")
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    assert folder.parts[-3:] == ("models--org--model", "snapshots", COMMIT)
    assert files(folder) == output
    assert hub.fetched() == sorted(output)
    ran = run("run", folder, "ab", "-n", "2", "--temp", "0", "--raw")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("ab")
    hub.requests.clear()
    assert run("pull", "org/model", "--revision", "main").stdout == done.stdout
    assert hub.fetched() == []
    assert run("pull", "org/model", HF_HUB_OFFLINE="1").stdout == done.stdout
    shown = run("info", folder)
    assert "general.name" in shown.stdout
    assert "  model\n" in shown.stdout


def test_an_interrupted_transfer_is_resumed(hub: Hub, run: Run) -> None:
    """The library keeps complete chunks of 10 MB."""
    content = b"GGUF" + bytes(24 << 20)
    hub.repositories["org/model"] = Repository({"m.gguf": content})
    hub.breaks["m.gguf"] = 1
    done = run("pull", "org/model")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).read_bytes() == content
    asked = [r.range for r in hub.requests if r.method == "GET" and r.path.endswith("m.gguf")]
    assert asked == [None, f"bytes={10 << 20}-"]


@pytest.mark.long
def test_complete_files_are_kept(hub: Hub, run: Run, tmp_path: Path) -> None:
    """After one file failed, the others are not fetched again."""
    output = folder_files(tmp_path, 3)
    hub.repositories["org/model"] = Repository(output)
    name = "model-00002-of-00003.safetensors"
    hub.breaks[name] = 99
    first = run("pull", "org/model")
    assert one_line(first).startswith("error: org/model: could not be fetched: ")
    hub.breaks.clear()
    hub.requests.clear()
    second = run("pull", "org/model")
    assert second.returncode == 0, second.stderr
    assert hub.fetched() == [name]
    assert files(Path(second.stdout.strip())) == output


@pytest.mark.parametrize("taken_up", often([False, True], [False]))
def test_a_full_disk(hub: Hub, run: Run, taken_up: bool) -> None:
    """At the first bytes, or when a transfer is resumed; with free space it continues."""
    content = b"GGUF" + bytes(24 << 20)
    hub.repositories["org/model"] = Repository({"m.gguf": content})
    if taken_up:
        hub.breaks["m.gguf"] = 99
        run("pull", "org/model")
        hub.breaks.clear()
    with largest(12 << 20 if taken_up else 5000):
        done = run("pull", "org/model")
    said = one_line(done)
    assert said.startswith("error: org/model: could not be fetched: ")
    assert "File too large" in said
    done = run("pull", "org/model")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).read_bytes() == content


@pytest.mark.long
def test_gguf_files(hub: Hub, run: Run, tmp_path: Path) -> None:
    whole = write_small(tmp_path / "m.gguf").read_bytes()
    names = ["m-Q4_0.gguf", "m-Q8_0.gguf", "big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]
    hub.repositories["org/model"] = Repository(dict.fromkeys([*names, "README.md"], whole))
    done = run("pull", "org/model:m-Q8_0.gguf")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).name == "m-Q8_0.gguf"
    assert hub.fetched() == ["m-Q8_0.gguf"]
    assert run("pull", "org/model:m-Q8_0.gguf", HF_HUB_OFFLINE="1").stdout == done.stdout
    assert run("run", done.stdout.strip(), "a", "-n", "1").returncode == 0
    parts = Path(run("pull", "org/model:big-00001-of-00002.gguf").stdout.strip())
    assert parts.with_name("big-00002-of-00002.gguf").is_file()
    wrong = run("pull", "org/model:none.gguf")
    assert "org/model:none.gguf: no such file in it: there is big-00001" in one_line(wrong)


def test_a_model_in_one_word(hub: Hub, run: Run, tmp_path: Path) -> None:
    """hf.co/ORG/NAME:TAG is fetched, then opened."""
    whole = write_small(tmp_path / "m.gguf").read_bytes()
    names = ["mmproj-F16.gguf", "m-Q4_0.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf"]
    hub.repositories["org/model"] = Repository(dict.fromkeys(names, whole))
    done = run("run", "hf.co/org/model", "a", "-n", "2", "--temp", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("a")
    assert hub.fetched() == ["m-Q4_K_M.gguf"]
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert notes[0] == "note: mmproj-F16.gguf: not fetched, halfbyte reads text only"
    assert notes[1] == "note: m-Q4_K_M.gguf of hf.co/org/model; others: m-Q4_0.gguf, m-Q8_0.gguf"
    tagged = run("pull", "https://huggingface.co/org/model:q8_0")
    assert Path(tagged.stdout.strip()).name == "m-Q8_0.gguf"
    wrong = run("run", "hf.co/org/model:Q5_K", "a")
    expected = "no GGUF file of type Q5_K: there is m-Q4_0.gguf, m-Q4_K_M.gguf, m-Q8_0.gguf"
    assert one_line(wrong) == f"error: hf.co/org/model:Q5_K: {expected}\n"


def test_damaged_weights_are_removed(hub: Hub, run: Run) -> None:
    content = b"GGUF" + bytes(5000)
    hub.repositories["org/model"] = Repository({"m.gguf": content})
    hub.damages["m.gguf"] = 1
    said = one_line(run("pull", "org/model"))
    assert said.startswith("error: org/model: m.gguf: expected the SHA-256 ")
    assert said.endswith("it arrived damaged and was removed, fetch it again\n")
    done = run("pull", "org/model")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).read_bytes() == content


def one_line(done: Done) -> str:
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


CLOSED = {
    "org/none": "no such repository; a private one needs HF_TOKEN",
    "org/private": "no such repository; a private one needs HF_TOKEN",
    "org/gated": "its terms must be accepted on its page, and HF_TOKEN set",
    "org/empty": "holds no model that halfbyte reads: README.md",
    "a b": "expected a repository such as org/name",
    "../../etc": "expected a repository such as org/name",
}


@pytest.fixture
def closed(hub: Hub, tmp_path: Path) -> None:
    """Repositories that are not for everyone."""
    output = folder_files(tmp_path)
    hub.repositories["org/private"] = Repository(output, private=True)
    hub.repositories["org/gated"] = Repository(output, gated=True)
    hub.repositories["org/empty"] = Repository({"README.md": b""})


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize("name", often(CLOSED, ["org/private", "org/gated", "org/empty", "a b"]))
def test_closed_repositories(name: str, run: Run) -> None:
    assert one_line(run("pull", name)) == f"error: {name}: {CLOSED[name]}\n"


@pytest.mark.usefixtures("closed")
def test_a_token_opens_repositories(run: Run) -> None:
    late = run("pull", "org/gated", "--revision", "v9")
    assert one_line(late) == "error: org/gated: no such revision\n"
    for name in ("org/private", "org/gated"):
        assert run("pull", name, HF_TOKEN=TOKEN).returncode == 0


def test_no_network(run: Run) -> None:
    done = run("pull", "org/model", HF_ENDPOINT="http://127.0.0.1:9")
    assert one_line(done).startswith("error: org/model: could not be fetched: ")
    done = run("pull", "org/model", HF_HUB_OFFLINE="1")
    assert one_line(done).startswith("error: org/model: could not be fetched: ")


def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from halfbyte.cli import main

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["pull", "org/model"]) == 2
    expected = "pull: the package huggingface_hub is missing: pip install 'halfbyte[hub]'"
    assert capsys.readouterr().err == f"error: {expected}\n"


SAFE = ["config.json", "model.safetensors", "tokenizer.json"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([*SAFE, *JUNK], SAFE),
        (["config.json", "pytorch_model.bin", "x.md"], ["config.json", "pytorch_model.bin"]),
        (["config.json", "weights.safetensors"], ["config.json", "weights.safetensors"]),
        (["a/model.safetensors", "config.json", "m.gguf"], ["m.gguf"]),
        (["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"], None),
        (["q/m.gguf", "README.md"], ["q/m.gguf"]),
        (["m.Q2_K.gguf", "m.Q4_K_M.gguf", "m.Q8_0.gguf"], ["m.Q4_K_M.gguf"]),
        (["m-q2_k.gguf", "m-q4_0.gguf", "m-q8_0.gguf"], ["m-q4_0.gguf"]),
        (["imatrix.gguf", "b.gguf", "mmproj-Q8_0.gguf"], ["b.gguf"]),
        (["a.gguf", "b.gguf"], ["a.gguf"]),
    ],
)
def test_choices(names: list[str], expected: list[str] | None) -> None:
    assert sorted(choose("o/m", sorted(names)).files) == sorted(expected or names)


def test_tags() -> None:
    names = [
        *("x-IQ4_XS.gguf", "x-Q4_K_M-00001-of-00002.gguf", "x-Q4_K_M-00002-of-00002.gguf"),
        *("Q4_0/x.gguf", "config.json", "model.safetensors"),
    ]
    assert choose("o/m", names, "q4_k_m").files == names[1:3]
    assert choose("o/m", names, "Q4_0").files == ["Q4_0/x.gguf"]
    assert choose("o/m", names, "iq4_xs").files == ["x-IQ4_XS.gguf"]
    for tag in ("Q4_K", "4_0", "Q4.0", "none"):
        with pytest.raises(HalfbyteError, match=f"o/m: no GGUF file of type {tag}: there is x-IQ4"):
            choose("o/m", names, tag)


def test_references() -> None:
    page = "https://huggingface.co/org/name"
    expected = {
        "org/name": Reference("org/name"),
        "org/name:Q4_0": Reference("org/name", "Q4_0"),
        "org/name:a/b.gguf": Reference("org/name", "a/b.gguf"),
        "hf.co/org/name:Q4_K_M": Reference("org/name", "Q4_K_M"),
        "https:/hf.co/org/name": Reference("org/name"),  # as a path of the system has it
        page: Reference("org/name"),
        f"{page}/": Reference("org/name"),
        f"{page}/tree/v2": Reference("org/name", "", "v2"),
        f"{page}/blob/main/q/a.gguf": Reference("org/name", "q/a.gguf", "main"),
        "hf.co/org/name/other": Reference("org/name/other"),
    }
    assert {text: parse(text) for text in expected} == expected


def test_impossible_choices() -> None:
    for names in ([], ["config.json"], ["model.safetensors"], ["mmproj.gguf"]):
        with pytest.raises(HalfbyteError, match=r"o/m: holds no model"):
            choose("o/m", names)
