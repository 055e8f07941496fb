// A helper thread in a browser: runs the kernels in the memory that Python has sent, until its pool
// is stopped. It has data and a stack of its own there; functions have the same places in the tables
// of all threads. `address` is the type of places in memory and tables: i64 are BigInts.
onmessage = ({ data: { module, memory, address, base, stack, entries, pool, spins } }) => {
  const number = address === "i64" ? BigInt : Number;
  const place = (value, mutable) =>
    new WebAssembly.Global({ value: address, mutable }, number(value));
  const table = { element: "anyfunc", initial: number(entries), address };
  const env = {
    memory,
    __indirect_function_table: new WebAssembly.Table(table),
    __memory_base: place(base, false),
    __table_base: place(1, false),
    __stack_pointer: place(stack, true),
  };
  const { exports } = new WebAssembly.Instance(module, { env });
  exports.__wasm_apply_data_relocs?.();
  postMessage("ready");
  exports.hb_serve(number(pool), spins);
  postMessage("ended");
  close();
};
