// One engine of the race: {open, run, close, devices, predict}, whose work is done in a worker.
export const plain = (error) => String(error?.message ?? error).trim().split("\n").pop();

const LIMIT = 180_000;  // milliseconds for an answer or a sign of life
const IN_PAGE = { "wllama-2": "wllama", "wllama-3": "wllama" };  // they have workers of their own

export async function startEngine(given) {
  const { name } = given;
  const engine = name in IN_PAGE ? inPage(`./engines/${IN_PAGE[name]}.mjs`) : inWorker();
  await engine.start(given);
  return engine;
}

function inPage(path) {
  let engine;
  const opened = {};
  return {
    async start(given) {
      const { start } = await import(path);
      engine = await within(start(given));
    },
    async open({ heat, ...given }) {
      const { run, ...facts } = await within(engine[heat](given));
      opened[heat] = run;
      return facts;
    },
    run: ({ heat, task }, say = () => {}) => within(opened[heat](task, say)),
    close: () => engine?.close()?.catch?.(() => {}),
  };
}

const tooLate = () => new Error(`no answer within ${LIMIT / 1000} s`);

function within(promise) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(tooLate()), LIMIT); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function inWorker() {
  const worker = new Worker(new URL("worker.mjs", import.meta.url), { type: "module" });
  const waiting = new Map();
  let ids = 0;
  const end = (id) => {
    const one = waiting.get(id);
    clearTimeout(one?.timer);
    waiting.delete(id);
    return one;
  };
  worker.onmessage = ({ data: { id, value, error, said } }) => {
    if (said) return waiting.get(id)?.say(...said);
    const { resolve, reject } = end(id) ?? {};
    if (error === undefined) resolve?.(value);
    else reject?.(new Error(error));
  };
  worker.onerror = ({ message }) => {
    for (const id of [...waiting.keys()]) end(id).reject(new Error(message || "its worker could not be started"));
  };
  const ask = (call, given, say = () => {}) => new Promise((resolve, reject) => {
    const id = ids++;
    const timer = setTimeout(() => end(id)?.reject(tooLate()), LIMIT);
    waiting.set(id, { resolve, reject, say, timer });
    worker.postMessage({ id, call, given });
  });
  const calls = ["start", "open", "run", "devices", "predict"];
  return {
    ...Object.fromEntries(calls.map((call) => [call, (given, say) => ask(call, given, say)])),
    close: () => worker.terminate(),
  };
}
