"""Running a graph: programs for sets of input shapes, kept in a bounded cache.

Programs are captured when their shapes first occur (`graph_programs`), with names for sizes that
differ between calls (`varying`); their packed weights belong to the model and are shared.

`Runner.plan` returns the programs of a call without memory for the last one: `halfbyte fit` counts
their bytes and estimates the time of their instructions.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from halfbyte.core import ops
from halfbyte.core.backends.memory import Memory
from halfbyte.core.ops import Operator
from halfbyte.core.program import Program
from halfbyte.onnx.files.model import Model
from halfbyte.onnx.graph_programs import GraphPrograms, Known, Settings, own
from halfbyte.onnx.lowering import LOWERING
from halfbyte.onnx.program_cache import LIMIT, ProgramCache
from halfbyte.onnx.shared_weights import SharedWeights
from halfbyte.onnx.stages import Inside, Observer, Opener, Stage
from halfbyte.room import memory_for

if TYPE_CHECKING:
    from halfbyte.onnx.kept_weights import KeptWeights

INT8_ATTENTION = "halfbyte.int8_attention"  # "1" in a model's metadata: attention may be in int8
MAX_STAGES = 32  # from one node on, of different shapes


class Runner:
    """The programs of a model.

    Parameters
    ----------
    model : Model
        A prepared model, which has no functions.
    open_program : callable
        Binds a program to a backend.
    use_kernels : bool
        False runs every node by its definition.
    int8_attention : collection of Operator
        Attention whose operands these products compute is in int8; see :func:`attention_products`.
    cores : int
        Large batches run in slices that fit the caches of this many cores.
    wide_products : bool
        Whether products of 16-bit integers may replace those of bytes; see
        `backends.prefers_widened`.
    max_stages : int
        How many stages that begin at the same node are kept; the least recently used is dropped.
    max_bytes : int
        Bytes of programs' own memory that are kept for later runs; see `ProgramCache`.
    name_sizes : bool
        Whether a program may serve several shapes; False captures one for each.
    memory : Memory, optional
        Where the programs run, if all run there: their weights are put into it.
    keep : collection of str
        Further values of the main graph that `run` may return; each has memory of its own.
    kept : KeptWeights, optional
        Where packed weights are found, and kept.
    """

    def __init__(
        self,
        model: Model,
        open_program: Opener,
        *,
        use_kernels: bool = True,
        int8_attention: Collection[Operator] = (),
        cores: int = 1,
        wide_products: bool = False,
        max_stages: int = MAX_STAGES,
        max_bytes: int = LIMIT,
        name_sizes: bool = True,
        memory: Memory | None = None,
        keep: Collection[str] = (),
        kept: KeptWeights | None = None,
    ) -> None:
        self.model = model
        settings = Settings(
            open_program, LOWERING if use_kernels else None, int8_attention, cores, wide_products,
            max_stages, ProgramCache(max_bytes), name_sizes,
        )  # fmt: skip
        self._settings, self._weights = settings, SharedWeights(model.graph, memory, kept)
        outputs = [v.name for v in model.graph.outputs]
        self._programs = GraphPrograms(model, settings, self._weights, [*outputs, *keep])

    def run(
        self,
        feeds: Mapping[str, Any],
        names: Sequence[str],
        observer: Observer | None = None,
    ) -> dict[str, Any]:
        """The values of these outputs; arrays are copies."""
        values: dict[str, Any] = dict(feeds)
        self._settings.cache.begin()
        with memory_for(f"{self.model.path}: a run"):
            known = self._programs.run(values, observer=observer)
            return {name: own(values.get(name, known.get(name))) for name in names}

    def plan(self, feeds: Mapping[str, Any], observer: Observer | None = None) -> list[Program]:
        """The programs that such a call runs, in order, and then those of bodies, each once.

        All but the last are run, because the shapes after them may depend on their results; the
        last one allocates no memory. `observer` is notified of the nodes between programs.

        Raises
        ------
        UnsupportedError
            One of those nodes takes too many operations for a plan.
        """
        values: dict[str, Any] = dict(feeds)
        programs, inside = [], Inside(observer)
        known: Known = ChainMap({}, self.model.graph.initializers)
        for stage in self._programs.through(values, known, inside, planning=True):
            programs += [stage.program] if stage.program is not None else []
            if stage.last < len(self.model.graph.nodes):
                stage.run(values, None)
        return [*programs, *inside.programs]

    def programs(self) -> list[Program]:
        """Every program in the cache; see `GraphPrograms.programs`."""
        return self._programs.programs()

    def whole_stage(self) -> Stage | None:
        """The stage of the last run, if it was all of it and follows from types and shapes."""
        return self._programs.whole_stage()

    def repeat(self, stage: Stage) -> bool:
        """Whether a stage is still there; it counts as used."""
        return self._settings.cache.again(stage)

    def memory(self) -> tuple[int, int, int]:
        """Bytes of weights as kernels read them, of programs, and the number of programs."""
        cache = self._settings.cache
        return self._weights.nbytes, cache.nbytes, len(cache)

    def close(self) -> None:
        """Stop all threads."""
        self._programs.close()


def attention_products(model: Model, wanted: bool | None = None) -> Collection[Operator]:
    """The products whose results attention takes in int8; by default, as the metadata says."""
    if wanted is None:
        wanted = model.metadata.get(INT8_ATTENTION) == "1"
    return (ops.matmul_int8, ops.matmul_rotated) if wanted else ()
