// transformers.js, which runs ONNX Runtime below; on the processor, with onnxruntime-web's binary.
import { inputs } from "./onnxruntime-web.mjs";

const binaries = new URL("../onnxruntime-web/dist/", import.meta.url).href;
const CONFIG = { model_type: "bert" };

export async function start({ threads }) {
  const { AutoModel, Tensor, env } = await import(new URL("../transformers.js/dist/transformers.min.js", import.meta.url));
  Object.assign(env, { allowRemoteModels: false, allowLocalModels: true, useBrowserCache: false, useCustomCache: true, useWasmCache: false });
  Object.assign(env.backends.onnx.wasm, {
    numThreads: threads,
    wasmPaths: { mjs: `${binaries}ort-wasm-simd-threaded.mjs`, wasm: `${binaries}ort-wasm-simd-threaded.wasm` },
  });
  return {
    async encode({ model }) {
      // the model is here already: requests for its files are answered from memory
      env.customCache = {
        async match(request) {
          const name = String(request?.url ?? request);
          if (name.endsWith("config.json")) return new Response(JSON.stringify(CONFIG));
          if (name.endsWith(".onnx")) return new Response(model);
          return undefined;
        },
        async put() {},
      };
      const encoder = await AutoModel.from_pretrained("encoder", { dtype: "q8", device: "wasm" });
      const run = async ({ ids }) => {
        const feeds = Object.fromEntries(Object.entries(inputs(ids)).map(([name, values]) => [
          name, new Tensor("int64", values, [1, ids.length]),
        ]));
        const start = performance.now();
        const [output] = Object.values(await encoder(feeds));
        return { seconds: (performance.now() - start) / 1000, output: Array.from(output.data) };
      };
      return { threads, run };
    },
  };
}
