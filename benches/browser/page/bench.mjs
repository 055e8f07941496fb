// ?engine=relaxed|simd128|numpy|wllama-2|wllama-3|pyodide & model=ADDRESS & context=TOKENS
//  & threads=COUNT (0: the engine's default)
//
// window.started: milliseconds from the page's opening to the first token, or what went wrong;
// window.threads: the engine's number of threads;
// window.measure(ids, count): [prompt, decode after the first token] in tokens/s, without sampling
// if the engine allows it; of halfbyte's kernels also the GB/s at which they read memory.
const query = new URL(location.href).searchParams;
const engine = query.get("engine");
const model = new URL(query.get("model") ?? "", location.href).href;
const context = Number(query.get("context") ?? 256);
const threads = Number(query.get("threads") ?? 1);
window.threads = 1;

async function halfbyte() {
  const worker = new Worker(`halfbyte.mjs${location.search}`, { type: "module" });
  const answers = [];
  worker.onmessage = ({ data }) => (data.kept ? (window.kept = true) : answers.shift()(data));
  const ask = (message) => new Promise((resolve, reject) => {
    answers.push((data) => (data.error ? reject(new Error(data.error)) : resolve(data)));
    if (message) worker.postMessage(message);
  });
  window.threads = (await ask()).threads;
  return { measure: (ids, count) => ask({ ids, count }) };
}

async function wllama(version) {
  const { Wllama } = await import(`/wllama-${version}/index.js`);
  const paths = version === 2
    ? {
      "single-thread/wllama.wasm": "/wllama-2/single-thread/wllama.wasm",
      "multi-thread/wllama.wasm": "/wllama-2/multi-thread/wllama.wasm",
    }
    : { default: "/wllama-3/wasm/wllama.wasm" };
  const logger = { debug() {}, log() {}, warn() {}, error: console.error };
  const peer = new Wllama(paths, { suppressNativeLog: true, logger });
  await peer.loadModelFromUrl(model, {
    n_ctx: context, n_batch: 128, n_threads: threads || undefined, n_gpu_layers: 0, seed: 1,
    warmup: false,
  });
  window.threads = peer.getNumThreads();
  return version === 2 ? two(peer) : three(peer);
}

function two(peer) {
  const run = async (ids, count) => {
    await peer.kvClear();
    const start = performance.now();
    await peer.decode(ids, {});
    const middle = performance.now();
    await peer.kvClear();
    await peer.decode(ids.slice(0, 1), {});
    const begin = performance.now();
    for (let i = 0; i < count; i++) await peer.decode([ids[i % ids.length]], {});
    const end = performance.now();
    return [1000 * ids.length / (middle - start), 1000 * count / (end - begin)];
  };
  return { measure: run, first: () => run([1], 0) };
}

function three(peer) {
  const complete = async (prompt, count) => (await peer.createCompletion({
    prompt, max_tokens: count, temperature: 0, ignore_eos: true, cache_prompt: false,
  })).timings;
  const run = async (ids, count, text) => {
    const first = await complete(text, 1), then = await complete("a", count);
    if (first.prompt_n !== ids.length || then.predicted_n !== count) {
      throw new Error(`wllama 3 took ${first.prompt_n} and ${then.predicted_n} tokens`);
    }
    return [first.prompt_per_second, then.predicted_per_second];
  };
  return { measure: run, first: () => complete("a", 1) };
}

try {
  const runner = await (engine.startsWith("wllama") ? wllama(Number(engine.at(-1))) : halfbyte());
  await runner.first?.();
  window.measure = runner.measure;
  window.started = performance.now();
} catch (error) {
  window.started = String(error.stack ?? error);
}
