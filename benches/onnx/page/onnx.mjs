// ?engine=relaxed|simd128|onnxruntime-web & model=ADDRESS & threads=COUNT
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
  return async (feeds, runs) => {
    const tensors = Object.fromEntries(feeds.map(([name, dims, values]) => [
      name, new ort.Tensor("int64", BigInt64Array.from(values, BigInt), dims),
    ]));
    const seconds = [];
    let output;
    for (let run = 0; run < runs; run++) {
      const start = performance.now();
      output = (await session.run(tensors))[session.outputNames[0]];
      seconds.push((performance.now() - start) / 1000);
    }
    return { seconds, output: Array.from(output.data) };
  };
}

try {
  window.measure = await (engine === "onnxruntime-web" ? onnxruntimeWeb() : halfbyte());
  window.started = performance.now();
} catch (error) {
  window.started = String(error.stack ?? error);
}
