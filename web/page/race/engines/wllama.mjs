// wllama 2 and 3, llama.cpp in WebAssembly. They start workers of their own, and version 2 needs a
// document, so this module runs in the page itself.
const quiet = { debug() {}, log() {}, warn() {}, error: console.error };
const PATHS = {
  2: ["single-thread/wllama.wasm", "multi-thread/wllama.wasm"],
  3: ["wasm/wllama.wasm"],
};

export async function start({ name, threads }) {
  const major = Number(name.at(-1));
  const folder = new URL(`../${name}/esm/`, import.meta.url).href;
  const { Wllama } = await import(`${folder}index.js`);
  const paths = Object.fromEntries(PATHS[major].map((path) => [major === 2 ? path : "default", folder + path]));
  const engine = new Wllama(paths, { suppressNativeLog: true, logger: quiet });
  return {
    async write({ model, context }) {
      await engine.loadModel([model], {
        n_ctx: context, n_batch: 128, n_threads: threads, n_gpu_layers: 0, seed: 1, warmup: false,
      });
      const run = (major === 2 ? two : three)(engine);
      return { threads: engine.getNumThreads(), run };
    },
    close: () => engine.exit(),
  };
}

// Counts tokens as they come; the first ends the prompt.
function watch(say) {
  const start = performance.now();
  let first, count = -1;
  return {
    token(text) {
      const now = performance.now();
      first ??= now;
      count += 1;
      if (count) say(text, count, (now - first) / 1000);
    },
    result(prompt, text) {
      const end = performance.now();
      return { prompt, reading: (first - start) / 1000, tokens: count, writing: (end - first) / 1000, text };
    },
  };
}

function two(engine) {
  return async ({ prompt, count }, say) => {
    const ids = await engine.tokenize(prompt);
    await engine.kvClear();
    const watched = watch(say);
    const text = await engine.createCompletion(prompt, {
      nPredict: count, sampling: { temp: 0 }, useCache: false,
      onNewToken: (token, piece, text) => watched.token(text),
    });
    return watched.result(ids.length + (engine.mustAddBosToken() ? 1 : 0), text);
  };
}

function three(engine) {
  return async ({ prompt, count }, say) => {
    let text = "", timings;
    const watched = watch(say);
    await engine.createCompletion({
      prompt, max_tokens: count, temperature: 0, cache_prompt: false, stream: true,
      onData(chunk) {
        timings = chunk.timings ?? timings;
        const piece = chunk.choices?.[0]?.text ?? "";
        if (!piece) return;
        text += piece;
        watched.token(text);
      },
    });
    const result = watched.result(timings?.prompt_n ?? 0, text);
    return { ...result, timings };
  };
}
