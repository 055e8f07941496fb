"""`InferenceSession`: an ONNX model ready to run."""

from __future__ import annotations

import copy
import functools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from halfbyte.core.backends import Executable, open_program, prefers_widened
from halfbyte.core.backends.cores import usable_threads
from halfbyte.core.backends.libraries import instruction_sets, library_for
from halfbyte.core.backends.memory import Memory
from halfbyte.core.interrupt import interruptible
from halfbyte.core.profiling import Profile
from halfbyte.core.program import Program
from halfbyte.core.turns import Turns
from halfbyte.errors import HalfbyteError, UnsupportedError
from halfbyte.onnx.files.initializers import Initializers, stored
from halfbyte.onnx.files.writer import write_model
from halfbyte.onnx.prepare import prepare, simplified
from halfbyte.onnx.runner import Runner, attention_products
from halfbyte.onnx.session.arrays import to_caller
from halfbyte.onnx.session.binding import IOBinding
from halfbyte.onnx.session.checking import check_nodes
from halfbyte.onnx.session.compatible import Compatible
from halfbyte.onnx.session.errors import (
    Fail,
    ModelLoadCanceled,
    RuntimeException,
    RuntimeProblem,
    TypeProblem,
    translated,
)
from halfbyte.onnx.session.opening import Source, open_model
from halfbyte.onnx.session.options import GraphOptimizationLevel, RunOptions, SessionOptions
from halfbyte.onnx.session.placing import backend_of, memory_apart
from halfbyte.onnx.session.providers import check_providers
from halfbyte.onnx.session.repeated import Key, RepeatedRuns
from halfbyte.onnx.session.values import OrtValue
from halfbyte.onnx.stages import Opener
from halfbyte.outputs import write_file

if TYPE_CHECKING:
    from halfbyte.onnx.kept_weights import KeptWeights
    from halfbyte.onnx.session.trace import Trace


class SessionMemory(NamedTuple):
    """What a session holds, in bytes.

    Attributes
    ----------
    weights : int
        Weights as kernels read them, mapped from the file or packed.
    programs : int
        The memory of captured programs: inputs, outputs and intermediate results.
    program_count : int
        The number of programs.
    program_limit : int
        What programs may keep between runs: `SessionOptions.program_cache_bytes`.
    """

    weights: int
    programs: int
    program_count: int
    program_limit: int


MAX_RUNNERS = 4  # sets of replaced initializers; each has packed weights of its own


class InferenceSession(Compatible):
    """A model ready to run. Several threads may use one session: their runs take turns, in the
    order of the calls.

    Parameters
    ----------
    path_or_bytes : path, bytes or binary file
        External data is read from the folder of a path; see `SessionOptions` for models in memory.
    sess_options : SessionOptions, optional
    providers, provider_options, **kwargs
        Accepted for compatibility: there is one provider, the processor.

    Raises
    ------
    NoSuchFile, InvalidArgument, InvalidProtobuf, InvalidGraph, Fail, NotImplemented
        With a message of one line.
    """

    def __init__(
        self,
        path_or_bytes: Source,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        options = _checked_options(sess_options)
        check_providers(providers, provider_options)
        self._trace: Trace | None = None
        if options.enable_profiling:
            from halfbyte.onnx.session.trace import Trace  # needs modules that take 20 ms

            self._trace = Trace()
        start = time.perf_counter()
        check = functools.partial(_check_loading, sess_options)
        check()
        super().__init__(open_model(path_or_bytes, options, memory_apart(options)), options)
        check()
        check_nodes(self._model)
        path = path_or_bytes if isinstance(path_or_bytes, str | os.PathLike) else None
        self._model_path = None if path is None else os.fspath(path)  # optimum-onnx reads it
        level = self._options.graph_optimization_level
        self._optimize = level != GraphOptimizationLevel.ORT_DISABLE_ALL
        threads = self._options.intra_op_num_threads
        self._threads = usable_threads(max(threads, 0))
        self._backend = backend_of(self._options)
        closed = f"{self._model.path}: the session is closed"
        self._repeated = RepeatedRuns()
        self._turns = Turns(lambda: Fail(closed))
        # by replaced initializers, the least recently used one first
        self._runners: OrderedDict[frozenset[str], Runner] = OrderedDict()
        try:
            with interruptible(check):
                self._kept = self._kept_weights()
                if self._options.optimized_model_filepath:
                    self._write(Path(self._options.optimized_model_filepath))
                self._runner(frozenset())
        except HalfbyteError as error:
            raise translated(error) from error
        if self._trace is not None:
            self._trace.span("session_initialization", start)

    # ---- running ---------------------------------------------------------------------------------

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Compute outputs.

        Parameters
        ----------
        output_names : names, or None for all
        input_feed : mapping of name to array
            Values may be `OrtValue` too, lists for sequences, and None for absent optionals.
        run_options : RunOptions, optional

        Returns
        -------
        list
            Arrays, in the order of the names; lists for sequences, None for absent optionals.

        Raises
        ------
        ValueProblem
            A required input is missing.
        InvalidArgument, RuntimeProblem
            A name, dtype or shape is not the model's.
        Fail, NotImplemented, RuntimeException
            A node cannot compute its outputs, or there is too little memory.
        """
        key = None
        if run_options is None and self._trace is None and type(input_feed) is dict:
            key = self._repeated.key(output_names, input_feed)
        if key is not None and (results := self._repeat(key, input_feed)) is not None:
            return results
        return [to_caller(value) for value in self._run(output_names, input_feed, run_options, key)]

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Compute outputs as :meth:`run` does, with `OrtValue` for feeds and results."""
        return [OrtValue(v) for v in self._run(output_names, input_dict_ort_values, run_options)]

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Compute outputs as :meth:`run` does, with the values of a binding.

        Raises
        ------
        RuntimeProblem
            No output is bound, a result does not fit the memory bound to it, an input is missing or
            wrong, or a node failed.
        """
        if not iobinding.wanted:
            raise RuntimeProblem(f"{self._model.path}: no output is bound")
        try:
            results = self.run_with_ort_values(iobinding.wanted, iobinding.feeds, run_options)
        except HalfbyteError as error:
            raise RuntimeProblem(str(error)) from error
        iobinding.fill(results)

    def io_binding(self) -> IOBinding:
        """A new, empty binding of inputs and outputs."""
        return IOBinding(self)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], Any],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Compute outputs as :meth:`run` does, in a thread; without threads, before returning.

        `callback` is called with the outputs, `user_data` and the message of an error, which is
        empty if there was none.
        """

        def work() -> None:
            try:
                results, problem = self.run(output_names, input_feed, run_options), ""
            except HalfbyteError as error:
                results, problem = [], str(error)
            callback(results, user_data, problem)

        thread = threading.Thread(target=work, name="halfbyte-run")
        try:
            thread.start()
        except RuntimeError:  # Python in a browser has no threads
            work()

    def _repeat(self, key: Key, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The results of a run like an earlier one; None if it has to be run as a new one."""
        if not self._turns.try_begin():
            return None
        try:
            for pages in self._model.mapped:
                pages.check()
            return self._repeated.run(key, feeds)
        except HalfbyteError as error:
            raise translated(error) from error
        except MemoryError:
            return None  # the other way says what there is no memory for
        finally:
            self._turns.finish()

    def _run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None,
        key: Key | None = None,
    ) -> list[Any]:
        check = functools.partial(_check_run_options, self._model.path, run_options)
        check()
        feeds = self._checked(input_feed)
        names = self._wanted(output_names)
        start = time.perf_counter()
        with self._turns.whole(check):
            try:
                for pages in self._model.mapped:
                    pages.check()
                with interruptible(check):
                    runner = self._runner(frozenset(feeds.keys() & self._overridable.keys()))
                    results = runner.run(feeds, names, self._trace)
                if self._kept is not None:
                    self._kept.save()
                if key is not None:
                    self._repeated.add(key, names, input_feed, feeds, runner, results)
            except HalfbyteError as error:
                raise translated(error) from error
            except MemoryError as error:
                raise RuntimeException(f"{self._model.path}: no memory for the run") from error
            if self._trace is not None:
                self._trace.span("model_run", start)
        return [results[name] for name in names]

    def _write(self, path: Path) -> None:
        """Write the simplified model; see `SessionOptions.optimized_model_filepath`."""
        constants = frozenset(stored(self._model.graph.initializers)) - self._overridable.keys()
        model = simplified(self._model, constants) if self._optimize else self._model
        write_file(path, functools.partial(write_model, model=model))

    def _kept_weights(self) -> KeptWeights | None:
        """See `SessionOptions.packed_weights_filepath`."""
        options = self._options
        if not options.packed_weights_filepath:
            return None
        if options._initializers or options._files:
            raise UnsupportedError(
                f"{self._model.path}: packed weights are not kept of initializers that options give"
            )
        from halfbyte.onnx.kept_weights import KeptWeights  # needs modules that few sessions need

        kernels = [self._backend, *instruction_sets(), self._may_widen(), self._optimize]
        path = Path(options.packed_weights_filepath)
        return KeptWeights(
            path, self._model, " ".join(map(str, [*kernels, options.int8_attention]))
        )

    def _runner(self, replaced: frozenset[str]) -> Runner:
        """The runner of the model with these initializers replaced by inputs."""
        if replaced not in self._runners:
            prepared = prepare(self._model, optimize=self._optimize, replaced=replaced)
            self._runners[replaced] = Runner(
                prepared,
                self._opener(),
                use_kernels=self._optimize, cores=self._threads,
                wide_products=self._may_widen(),
                max_bytes=self._options.program_cache_bytes,
                memory=self._memory(),
                int8_attention=attention_products(self._model, self._options.int8_attention),
                kept=None if replaced else self._kept,
            )  # fmt: skip
            while len(self._runners) > MAX_RUNNERS:
                self._runners.popitem(last=False)[1].close()
        self._runners.move_to_end(replaced)
        return self._runners[replaced]

    def _memory(self) -> Memory | None:
        """Where all programs run; None for NumPy's definitions."""
        initializers = self._model.graph.initializers
        if self._backend == "numpy":
            return None
        if isinstance(initializers, Initializers):
            return initializers.memory  # type: ignore[no-any-return]
        return library_for(self._threads).memory

    def _may_widen(self) -> bool:
        """Whether arithmetic may differ between processors and numbers of rows."""
        return not self._options.use_deterministic_compute and prefers_widened(self._backend)

    def _opener(self) -> Opener:
        """The opener for the session's backend; it must not keep the session alive."""
        return functools.partial(_opened, backend=self._backend, threads=self._threads)

    # ---- halfbyte's own methods, and the end -----------------------------------------------------

    def programs(self) -> list[Program]:
        """The programs captured so far: one or several for each set of input shapes."""
        with self._turns.whole():
            return [program for runner in self._runners.values() for program in runner.programs()]

    def memory(self) -> SessionMemory:
        """What the session holds; sets of replaced initializers have weights of their own."""
        with self._turns.whole():
            parts = [runner.memory() for runner in self._runners.values()]
        weights, programs, count = (sum(part) for part in zip(*parts, strict=True))
        return SessionMemory(weights, programs, count, self._options.program_cache_bytes)

    @property
    def profile(self) -> Profile | None:
        """Times by kernel of all runs, where profiling is on."""
        return self._trace.profile if self._trace is not None else None

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, in nanoseconds since 1970; 0 where it is off."""
        return self._trace.start_ns if self._trace is not None else 0

    def end_profiling(self) -> str:
        """Write the trace, a JSON file that Chrome and Perfetto show; its name, or '' if off."""
        with self._turns.whole():
            trace, self._trace = self._trace, None
        if trace is None:
            return ""
        return trace.write(self._options.profile_file_prefix, self._backend, self._threads)

    def close(self) -> None:
        """Stop the threads and free the memory after the current run; later runs fail."""
        self._turns.close()
        while self._runners:
            self._runners.popitem()[1].close()

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeProblem(
            f"{self._model.path}: a session cannot be pickled or copied: it holds memory of "
            "threads and kernels; make one from the model's file in each process"
        )


def _opened(program: Program, backend: str, threads: int) -> Executable:
    executable = open_program(program, backend, threads)
    if getattr(executable, "tuner", None) is not None:
        # imported here, since downloads need modules that take long to import
        from halfbyte.download.threads import remember

        remember(executable)
    return executable


def _check_loading(options: SessionOptions | None) -> None:
    """Raise `ModelLoadCanceled` if another thread has set the flag."""
    if options is not None and options._canceled:
        raise ModelLoadCanceled("loading was canceled: SessionOptions' cancellation flag is set")


def _check_run_options(path: Path, options: RunOptions | None) -> None:
    if options is None:
        return
    if not isinstance(options, RunOptions):
        raise TypeProblem(f"run_options: {type(options).__name__}, expected RunOptions")
    if options.terminate:
        raise Fail(f"{path}: RunOptions.terminate is set")


def _checked_options(options: SessionOptions | None) -> SessionOptions:
    """A copy of the options, which later changes do not affect."""
    if options is None:
        return SessionOptions()
    if not isinstance(options, SessionOptions):
        raise TypeProblem(f"sess_options: {type(options).__name__}, expected SessionOptions")
    return copy.deepcopy(options, {id(v): v for v in options._initializers.values()})
