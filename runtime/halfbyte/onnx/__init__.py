"""ONNX graphs: from a file to a run.

    file -> files -> Model -> prepare (inline, fold, merge, fuse) -> Runner
         -> Capture of one call's shapes -> Program -> passes -> backend

- `files` reads and checks the messages of a file; `external` data is mapped beside it.
- `reference` defines every operator in NumPy; `evaluate` runs a graph node by node by these
  definitions: complete, slow, and what everything else is compared with.
- `prepare` rewrites a graph once, before any shape is known, with the patterns of `fusion`.
- `runner` keeps the programs of a graph for each set of input shapes; `capture` records one, with
  the rules of `lowering`; `passes` rewrite programs.
- `session` is ONNX Runtime's interface; `standin` registers it as `onnxruntime`.

What is computed before a run is bounded: `prepare` limits the bytes and operations of folded
constants and leaves the rest to the run. A run compares sizes with the memory that is left
(`halfbyte.room`) before it allocates arrays, programs or the results of loops, and the error names
the node. A plan (`Runner.plan`) compares nothing with this machine's memory, and computes no Einsum
of more than 2^33 operations (`work`).

Every node is a step that the caller can end (`halfbyte.core.interrupt`), from inlining to the
planning of memory: `RunOptions.terminate` and the cancellation of loading reach all of them.
"""
