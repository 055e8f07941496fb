// A helper thread in a browser: runs the kernels in the memory that Python has sent, until its pool
// is stopped. It has data and a stack of its own there; functions have the same places in the tables
// of all threads.
onmessage = ({ data: { module, memory, base, stack, entries, pool, spins } }) => {
  const number = (value, mutable) => new WebAssembly.Global({ value: "i32", mutable }, value);
  const env = {
    memory,
    __indirect_function_table: new WebAssembly.Table({ element: "anyfunc", initial: entries }),
    __memory_base: number(base, false),
    __table_base: number(1, false),
    __stack_pointer: number(stack, true),
  };
  const { exports } = new WebAssembly.Instance(module, { env });
  exports.__wasm_apply_data_relocs?.();
  postMessage("ready");
  exports.hb_serve(pool, spins);
  postMessage("ended");
  close();
};
