"""Runs `quantize` on a Ray cluster of two nodes on this machine: ``make test-ray``.

A node of one processor each; files are compared with those of this process, byte for byte.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from operator import neg
from pathlib import Path

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

import ray
from ray.cluster_utils import Cluster

from halfbyte.errors import HalfbyteError
from halfbyte.quantize import quantize_file
from halfbyte.quantize.engines import Distributed, RayCluster, worker
from halfbyte.quantize.recipe import parse_keep

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "runtime/halfbyte/data/storyteller.bin"
TEXT = ROOT / "tests/data/storyteller-heldout.txt"
CASES = {
    "bits": {"bits": 4.9, "calibrate": TEXT},
    "gptq": {"type": "int4", "calibrate": TEXT},
    "search": {"type": "Q4_K_M", "method": "search", "calibrate": TEXT},
}


class Killing:
    """Kills a node when a share of the work is done, once."""

    def __init__(self, cluster: Cluster, share: float) -> None:
        self.cluster, self.share = cluster, share
        self.killed = 0

    def __call__(self, done: int, total: int) -> None:
        if done < self.share * total or self.killed:
            return
        (node,) = self.cluster.worker_nodes
        self.cluster.remove_node(node, allow_graceful=False)
        self.killed += 1


def nodes(cluster: Cluster, count: int) -> None:
    """Wait until the cluster has so many nodes of one processor."""
    while len(cluster.list_all_nodes()) < count:
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()


def same_file(name: str, folder: Path, engine: str, progress: Callable[[int, int], None]) -> None:
    """Compare a case's file with that of this process."""
    outputs = {"local": folder / f"{name}-local.gguf", engine: folder / f"{name}-ray.gguf"}
    for kind, output in outputs.items():
        start = time.perf_counter()
        used = progress if kind == engine else None
        quantize_file(MODEL, output=output, engine=kind, threads=2, progress=used, **CASES[name])
        print(f"{name:<8} {kind:<20} {time.perf_counter() - start:6.1f} s")
    first, second = (path.read_bytes() for path in outputs.values())
    assert first == second, name


def raised(run: Callable[[], object]) -> str:
    """The message of the error that a call raises."""
    try:
        run()
    except HalfbyteError as error:
        return str(error)
    raise AssertionError("expected an error")


def errors(engine: str) -> None:
    """What a part raises, one that always ends its worker, another version, no cluster."""
    with Distributed(RayCluster(engine.partition(":")[2])) as cluster:
        assert list(cluster.map(neg, enumerate(range(9)))) == [(i, -i) for i in range(9)]
        assert "expected PATTERN=TYPE" in raised(
            lambda: list(cluster.map(parse_keep, [("w", "x")]))
        )
        text = raised(lambda: list(cluster.map(os._exit, [("w", 3)])))
        assert "tensor 'w': its part failed on all 4 tries: WorkerCrashedError" in text, text
        print(text)
    original = worker.conditions
    for name in ("halfbyte", "the kernels"):
        worker.conditions = lambda name=name: original() | {name: "another"}  # type: ignore[misc]
        try:
            with Distributed(RayCluster(engine.partition(":")[2])) as cluster:
                text = raised(lambda c=cluster: list(c.map(neg, [("w", 3)])))  # type: ignore[misc]
                assert f"expected {name} another" in text, text
                print(text)
        finally:
            worker.conditions = original
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    text = raised(lambda: RayCluster(address))
    assert f"no cluster answers at {address}" in text, text


def interrupted(folder: Path, engine: str) -> None:
    """Ctrl-C in the middle: one line, nothing left behind, and the cluster lives on."""
    out = folder / "interrupted"
    out.mkdir()
    program = "import sys; from halfbyte.cli import quantize; sys.exit(quantize(sys.argv[1:]))"
    command = [
        sys.executable, "-c", program, str(MODEL), "--bits", "4.9", "--calibrate", str(TEXT),
        "--engine", engine, "-o", str(out / "out.gguf"),
    ]  # fmt: skip
    for seconds in (0.2, 3.0, 5.0):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(seconds)
        child.send_signal(signal.SIGINT)
        output, error = child.communicate(timeout=60)
        print(f"SIGINT after {seconds} s: {child.returncode} {output!r} {error!r}")
        assert (child.returncode, output, error.strip()) in [(130, "", "interrupted")]
        assert list(out.iterdir()) == []


def main() -> None:
    """Run everything."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    engine = f"ray:{cluster.address}"
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for case, share in {"bits": 0.55, "gptq": 0.3, "search": 0.3}.items():
                nodes(cluster, 2)
                killing = Killing(cluster, share)
                same_file(case, folder, engine, killing)
                assert killing.killed == 1, case
            nodes(cluster, 2)
            errors(engine)
            interrupted(folder, engine)
    finally:
        ray.shutdown()
        cluster.shutdown()
    print("on a Ray cluster of two nodes: all as in one process")


if __name__ == "__main__":
    main()
