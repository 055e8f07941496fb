// ?engine=relaxed|simd128|onnxruntime-web|transformers.js & model=ADDRESS & threads=COUNT
//
// window.started: milliseconds from the page's opening until the model is loaded, or what went
// wrong; window.measure(feeds, runs): {seconds of each run, values of the first output}, where feeds
// are lists [name, dimensions, integers].
const query = new URL(location.href).searchParams;
const engine = query.get("engine");
const model = new URL(query.get("model"), location.href).href;
const threads = Number(query.get("threads") ?? 1);

function halfbyte() {
  const worker = new Worker(`onnx_worker.mjs${location.search}`, { type: "module" });
  const answers = [];
  worker.onmessage = ({ data }) => answers.shift()(data);
  const ask = (message) => new Promise((resolve, reject) => {
    answers.push((data) => (data.error ? reject(new Error(data.error)) : resolve(data)));
    if (message) worker.postMessage(message);
  });
  return ask().then(() => (feeds, runs) => ask({ feeds, runs }));
}

async function onnxruntimeWeb() {
  const ort = await import("/onnxruntime-web/ort.wasm.min.mjs");
  ort.env.wasm.wasmPaths = "/onnxruntime-web/";
  ort.env.wasm.numThreads = threads;
  ort.env.logLevel = "error";
  const content = new Uint8Array(await (await fetch(model)).arrayBuffer());
  const session = await ort.InferenceSession.create(content, {
    executionProviders: ["wasm"], graphOptimizationLevel: "all",
  });
  return measuring(ort.Tensor, async (tensors) => (
    (await session.run(tensors))[session.outputNames[0]]
  ));
}

// A model is a folder here: config.json, and the graph as onnx/model.onnx.
async function transformersJs() {
  const { AutoModel, Tensor, env } = await import("/transformers.js/transformers.min.js");
  Object.assign(env, { allowRemoteModels: false, allowLocalModels: true, useBrowserCache: false });
  env.localModelPath = "/models/";
  env.backends.onnx.wasm.wasmPaths = "/transformers.js/";
  env.backends.onnx.wasm.numThreads = threads;
  const name = model.split("/").at(-1).replace(".onnx", "");
  const loaded = await AutoModel.from_pretrained(name, { device: "wasm", dtype: "fp32" });
  return measuring(Tensor, async (tensors) => (await loaded(tensors)).sentence_embedding);
}

function measuring(Tensor, run) {
  return async (feeds, runs) => {
    const tensors = Object.fromEntries(feeds.map(([name, dims, values]) => [
      name, new Tensor("int64", BigInt64Array.from(values, BigInt), dims),
    ]));
    const seconds = [];
    let output;
    for (let count = 0; count < runs; count++) {
      const start = performance.now();
      output = await run(tensors);
      seconds.push((performance.now() - start) / 1000);
    }
    return { seconds, output: Array.from(output.data) };
  };
}

const ENGINES = { "onnxruntime-web": onnxruntimeWeb, "transformers.js": transformersJs };

try {
  window.measure = await (ENGINES[engine] ?? halfbyte)();
  window.started = performance.now();
} catch (error) {
  window.started = String(error.stack ?? error);
}
