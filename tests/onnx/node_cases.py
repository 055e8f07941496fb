"""ONNX's own tests as data, and a report of the cases that a backend passes.

python -m tests.onnx.node_cases [-k PART] [--kind KIND] [--backend NAME] [-v]
"""

from __future__ import annotations

import argparse
import functools
import tomllib
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test import loader
from tests.onnx.convert import array_from, model_from, numbers, value_from
from tests.support import wasm

from halfbyte.core.backends import Executable, open_program
from halfbyte.core.program import Program
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.files import dtypes
from halfbyte.onnx.files.model import Model, SparseTensor
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
EXCLUSIONS = Path(__file__).with_name("node_exclusions.toml")
DataSet = tuple[list[Any], list[Any]]  # values of inputs, values of outputs


@dataclass(frozen=True)
class NodeCase:
    """One of ONNX's tests. `name` is onnx's, without "test_"; files are read on demand."""

    name: str
    kind: str
    rtol: float
    atol: float
    source: Any  # onnx's TestCase

    @functools.cached_property
    def proto(self) -> onnx.ModelProto:
        return self.source.model or onnx.load(Path(self.source.model_dir) / "model.onnx")

    @functools.cached_property
    def operator(self) -> str:
        """The tested operator, with its domain unless that is ONNX's.

        A case whose node is expanded to its function belongs to the operator of the original case.
        """
        if self.name.endswith("_expanded"):
            whole = _by_name().get(self.name.removesuffix("_expanded"))
            if whole is not None:
                return whole.operator
        node = self.proto.graph.node[0 if self.kind == "node" else -1]
        return f"{node.domain}.{node.op_type}" if node.domain else node.op_type

    @property
    def domain(self) -> str:
        return self.operator.rpartition(".")[0]

    def model(self) -> Model:
        return model_from(self.proto, f"{self.name}.onnx")

    def data_sets(self) -> list[DataSet]:
        if self.source.data_sets is not None:
            return [
                ([value_from(v) for v in inputs], [value_from(v) for v in outputs])
                for inputs, outputs in self.source.data_sets
            ]
        folders = sorted(Path(self.source.model_dir).glob("test_data_set_*"))
        return [(self._stored(f, "input"), self._stored(f, "output")) for f in folders]

    def _stored(self, folder: Path, part: str) -> list[Any]:
        values = []
        graph = self.proto.graph
        for index, info in enumerate(graph.input if part == "input" else graph.output):
            path = folder / f"{part}_{index}.pb"
            if not path.exists():
                break  # the rest are initializers
            kind = info.type.WhichOneof("value")
            message = {
                "tensor_type": onnx.TensorProto,
                "sequence_type": onnx.SequenceProto,
                "optional_type": onnx.OptionalProto,
            }[kind]()
            message.ParseFromString(path.read_bytes())
            values.append(value_from(message))
        return values


@functools.cache
def node_cases() -> list[NodeCase]:
    """All cases of the installed onnx package."""
    state = np.random.get_state()  # noqa: NPY002 (onnx's cases draw from it when they are loaded)
    np.random.seed(0)  # noqa: NPY002
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [
            NodeCase(case.name.removeprefix("test_"), kind, case.rtol, case.atol, case)
            for kind in KINDS
            for case in loader.load_model_tests(kind=kind)
        ]
    np.random.set_state(state)  # noqa: NPY002
    return cases


@functools.cache
def _by_name() -> dict[str, NodeCase]:
    return {case.name: case for case in node_cases()}


def by_definition(model: Model) -> Callable[[dict[str, Any]], list[Any]]:
    evaluator = Evaluator(model)
    return lambda feeds: list(evaluator.run(feeds).values())


def by_programs(model: Model, backend: str) -> Callable[[dict[str, Any]], list[Any]]:
    """A backend that runs programs, as a session does."""
    runner = Runner(prepare(model), _opener(backend))
    names = [v.name for v in model.graph.outputs]
    return lambda feeds: list(runner.run(feeds, names).values())


def _opener(backend: str) -> Callable[[Program], Executable]:
    family, _, isa = backend.partition("-")
    if family == "wasm":
        return wasm.opener(isa)
    return lambda program: open_program(program, backend, 1)


# A backend: a model -> a function from the values of inputs to those of outputs.
BACKENDS: dict[str, Callable[[Model], Callable[[dict[str, Any]], list[Any]]]] = {
    "definition": by_definition,
    **{
        name: functools.partial(by_programs, backend=name)
        for name in ("numpy", "native", "wasm-simd128", "wasm-relaxed")
    },
}


def check(case: NodeCase, backend: str = "definition", values: bool = True) -> None:
    """Run a case; raises `AssertionError` if outputs differ.

    Without `values`, only types and shapes are compared.
    """
    model = case.model()
    run = BACKENDS[backend](model)
    for inputs, expected in case.data_sets():
        names = [v.name for v in model.graph.inputs]
        actual = run(dict(zip(names, inputs, strict=False)))
        assert len(actual) == len(expected), f"{len(actual)} outputs, expected {len(expected)}"
        for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            compare(ours, theirs, case.rtol, case.atol, f"output {index}", values)


def compare(
    ours: Any, theirs: Any, rtol: float, atol: float, where: str, values: bool = True
) -> None:
    """ONNX's rule: same kind, type and shape, floats within a tolerance, other values equal.

    The tolerance of bfloat16 is two units in the last place, as in onnx's own runner.
    """
    if isinstance(theirs, list):
        assert isinstance(ours, list), f"{where}: a {type(ours).__name__}, expected a sequence"
        assert len(ours) == len(theirs), f"{where}: {len(ours)} parts, expected {len(theirs)}"
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            compare(*pair, rtol, atol, f"{where}[{index}]", values)
        return
    if theirs is None or isinstance(theirs, dict | SparseTensor):
        assert ours == theirs, f"{where}: {ours!r}, expected {theirs!r}"
        return
    theirs = array_from(theirs)
    assert isinstance(ours, np.ndarray), f"{where}: a {type(ours).__name__}, expected an array"
    assert ours.dtype == theirs.dtype, f"{where}: {ours.dtype}, expected {theirs.dtype}"
    assert ours.shape == theirs.shape, f"{where}: shape {ours.shape}, expected {theirs.shape}"
    if not values:
        return
    mine, yours = numbers(ours), numbers(theirs)
    if mine.dtype.kind in "fc":
        rtol = max(rtol, 2**-6) if ours.dtype == dtypes.BFLOAT16 else rtol
        np.testing.assert_allclose(mine, yours, rtol=rtol, atol=atol, err_msg=where)
    else:
        np.testing.assert_array_equal(mine, yours, err_msg=where)


@functools.cache
def outcome(name: str, backend: str = "definition") -> str | None:
    """None if the case of this name passes, else the reason in one line."""
    try:
        check(_by_name()[name], backend)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()] or [""]
        return f"{type(error).__name__}: {' | '.join(lines[:4])}"
    return None


@dataclass(frozen=True)
class Exclusion:
    """Why a case does not pass; types and shapes of a `random` one are still compared."""

    reason: str
    random: bool


@functools.cache
def exclusions() -> dict[str, Exclusion]:
    """Cases that are known not to pass."""
    listed = tomllib.loads(EXCLUSIONS.read_text())
    return {
        name: Exclusion(group["reason"], group.get("random", False))
        for group in listed.values()
        for name in group["cases"]
    }


def report(cases: Sequence[NodeCase], backend: str, verbose: bool) -> None:
    """Print counts by operator, and the first error of each (of each case, if `verbose`)."""
    groups: dict[str, list[NodeCase]] = defaultdict(list)
    for case in cases:
        groups[case.operator].append(case)
    passed = 0
    for operator, group in sorted(groups.items()):
        failed = [(c.name, error) for c in group if (error := outcome(c.name, backend))]
        passed += len(group) - len(failed)
        print(f"{operator:<40} {len(group) - len(failed):>4} of {len(group)}")
        for name, error in failed if verbose else failed[:1]:
            print(f"    {name}: {error[:300]}")
    print(f"{passed} of {len(cases)} cases pass")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("-k", metavar="PART", default="", help="of a case's or operator's name")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--backend", choices=[*BACKENDS, "all"], default="definition")
    parser.add_argument("-v", "--verbose", action="store_true", help="the error of every case")
    options = parser.parse_args()
    selected = [
        case
        for case in node_cases()
        if options.kind in (None, case.kind)
        and (options.k in case.name or options.k in case.operator)
    ]
    if options.backend != "all":
        report(selected, options.backend, options.verbose)
        return
    for backend in BACKENDS:
        passed = sum(outcome(case.name, backend) is None for case in selected)
        counted = [case for case in selected if case.kind == "node" and not case.domain]
        share = sum(outcome(case.name, backend) is None for case in counted)
        print(
            f"{backend:<14} {passed} of {len(selected)} cases; "
            f"{share} of {len(counted)} nodes of the default domain"
        )


if __name__ == "__main__":
    main()
