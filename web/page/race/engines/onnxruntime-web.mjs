// ONNX Runtime in WebAssembly, on the processor.
const folder = new URL("../onnxruntime-web/dist/", import.meta.url).href;

export async function start({ threads }) {
  const ort = await import(`${folder}ort.wasm.min.mjs`);
  ort.env.wasm.wasmPaths = folder;
  ort.env.wasm.numThreads = threads;
  ort.env.logLevel = "error";
  return {
    async encode({ model }) {
      const bytes = new Uint8Array(await model.arrayBuffer());
      const session = await ort.InferenceSession.create(bytes, {
        executionProviders: ["wasm"], graphOptimizationLevel: "all",
      });
      const run = async ({ ids }) => {
        const feeds = Object.fromEntries(Object.entries(inputs(ids)).map(([name, values]) => [
          name, new ort.Tensor("int64", values, [1, ids.length]),
        ]));
        const start = performance.now();
        const output = (await session.run(feeds))[session.outputNames[0]];
        return { seconds: (performance.now() - start) / 1000, output: Array.from(output.data) };
      };
      return { threads, run };
    },
  };
}

// The inputs of a sentence encoder.
export const inputs = (ids) => ({
  input_ids: BigInt64Array.from(ids, BigInt),
  attention_mask: new BigInt64Array(ids.length).fill(1n),
  token_type_ids: new BigInt64Array(ids.length),
});
