// ?engine=relaxed|simd128|onnxruntime-web|transformers.js & model=ADDRESS & threads=COUNT
//
// window.started: milliseconds from the page's opening until the model is loaded, or what went
// wrong; window.measure(feeds, runs, all): {seconds of each run, outputs}, where feeds are lists
// [name, type, dimensions, bytes in base64], and so are outputs, of which only the first is
// returned unless all are asked for.
const query = new URL(location.href).searchParams;
const engine = query.get("engine");
const model = new URL(query.get("model"), location.href).href;
const threads = Number(query.get("threads") ?? 1);
const ARRAYS = {
  bool: Uint8Array, float16: globalThis.Float16Array ?? Uint16Array, float32: Float32Array,
  float64: Float64Array, int32: Int32Array, int64: BigInt64Array, uint8: Uint8Array,
};

function halfbyte() {
  const worker = new Worker(`onnx_worker.mjs${location.search}`, { type: "module" });
  const answers = [];
  worker.onmessage = ({ data }) => answers.shift()(data);
  const ask = (message) => new Promise((resolve, reject) => {
    answers.push((data) => (data.error ? reject(new Error(data.error)) : resolve(data)));
    if (message) worker.postMessage(message);
  });
  return ask().then(() => (feeds, runs, all) => ask({ feeds, runs, all }));
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
  return measuring(ort.Tensor, async (tensors) => {
    const outputs = await session.run(tensors);
    return session.outputNames.map((name) => [name, outputs[name]]);
  });
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
  return measuring(Tensor, async (tensors) => {
    const name = "sentence_embedding";
    return [[name, (await loaded(tensors))[name]]];
  });
}

function measuring(Tensor, run) {
  return async (feeds, runs, all) => {
    const tensors = Object.fromEntries(feeds.map(([name, type, dims, text]) => [
      name, new Tensor(type, new ARRAYS[type](bytes(text).buffer), dims),
    ]));
    const seconds = [];
    let outputs;
    for (let count = 0; count < runs; count++) {
      const start = performance.now();
      outputs = await run(tensors);
      seconds.push((performance.now() - start) / 1000);
    }
    const kept = outputs.slice(0, all ? undefined : 1);
    return { seconds, outputs: kept.map(([name, x]) => [name, x.type, [...x.dims], base64(x.data)]) };
  };
}

function bytes(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

function base64(array) {
  const content = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  const parts = [];
  for (let start = 0; start < content.length; start += 3 << 13) { // whole groups of three
    parts.push(btoa(String.fromCharCode(...content.subarray(start, start + (3 << 13)))));
  }
  return parts.join("");
}

const ENGINES = { "onnxruntime-web": onnxruntimeWeb, "transformers.js": transformersJs };

try {
  window.measure = await (ENGINES[engine] ?? halfbyte)();
  window.started = performance.now();
} catch (error) {
  window.started = String(error.stack ?? error);
}
