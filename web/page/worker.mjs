// Runs Pyodide with halfbyte, and exchanges messages with the page: see engine.py for those of
// language models, and graphs/handler.py, which is loaded at the first request, for ONNX models.
//
// ?backend=numpy   computes without the kernels
// ?fresh           starts without the results of an earlier visit
// ?empty           starts only Pyodide, for comparison
import { countBytes, fetchEarly, keepBytecode, keeps, startPyodide, unpack, unpackKept } from "./start.mjs";
import { hasRelaxedSimd } from "./simd.mjs";
import { locks } from "./storage.mjs";

const UNREACHABLE = "its server does not answer, or this device is offline";
const query = new URL(self.location.href).searchParams;
const parts = {};
let last = performance.now();
let engine;
// Functions that return promises of what is loaded at its first use:
let rest;  // the part of halfbyte that the page starts without
let templates;  // Jinja and its limits, for models that have a chat template
const feeling = once(startFeeling);  // what lets texts be felt as on another device
const handler = once(startHandler);  // the function that answers requests for ONNX models

function mark(name) {
  parts[name] = performance.now() - last;
  last = performance.now();
}

const say = (kind, content) => self.postMessage({ kind, ...content });

// A function that begins at its first call, and at the next one after a failure; it returns the promise.
function once(begin) {
  let begun;
  return () => {
    begun ??= begin().catch((error) => {
      begun = undefined;
      throw error;
    });
    return begun;
  };
}

async function start() {
  say("step", { text: "Starting Python" });
  if (query.has("empty")) {
    await startPyodide(undefined, []);
    mark("Python");
    return say("timing", { parts });
  }
  const answer = await fetch("site.json").catch(() => { throw new Error(UNREACHABLE); });
  if (!answer.ok) throw new Error(`site.json: the server answered ${answer.status}`);
  const settings = await answer.json();
  say("settings", { settings });
  const model = new URL(settings.model, import.meta.url).href;
  const fetcher = fetchEarly(model);  // while Pyodide starts
  const key = query.has("fresh") ? undefined : settings.start;
  const counted = countBytes(settings.sizes, (done, total) => say("fetched", { done, total }));
  const relaxed = hasRelaxedSimd();
  const kernels = relaxed ? "halfbyte-relaxed" : "halfbyte-simd128";
  const { pyodide, fromSnapshot } = await startPyodide(key, ["numpy", "halfbyte-text", kernels]);
  counted();
  mark("Python");
  if (pyodide._api) pyodide._api.on_fatal = (error) => say("lost", { text: `Python has failed (${plain(error)}).` });
  say("step", { text: "Starting NumPy" });
  pyodide.runPython(`
import sys
sys.dont_write_bytecode = False
import numpy
`);
  mark("NumPy");
  say("step", { text: "Starting halfbyte" });
  const { Engine } = pyodide.pyimport("halfbyte.web.engine");
  if (relaxed && !pyodide.pyimport("halfbyte.web.start").kernels_work()) {
    await pyodide.loadPackage("halfbyte-simd128", { messageCallback() {} });
  }
  rest = once(() => unpackRest(pyodide, settings.wheel));
  templates = once(() => Promise.all([loadAll(pyodide, settings.chat), rest()]));
  engine = Engine((json) => {
    const message = JSON.parse(json);
    if (message.kind === "model" && message.chat) {
      message.chat = settings.chat.length > 0;
      if (message.chat) templates().catch(() => {});  // the first message asks again
      else message.notes.push("This page was built without Jinja (pip install 'halfbyte[chat]'), so it cannot chat.");
    }
    if (message.kind === "piece") message.heap = pyodide._module?.HEAPU8.length;
    self.postMessage(message);
  }, query.get("backend") ?? "native", rest);
  mark("halfbyte");
  await engine.load_url(model, false, fetcher);
  mark("model");
  say("timing", { parts, restored: fromSnapshot });
  if (key && !fromSnapshot && await keeps()) keep(pyodide, key);
  return { pyodide, key };
}

// Loads packages. Pyodide's own function goes on without those that it could not fetch.
async function loadAll(pyodide, names) {
  await pyodide.loadPackage(names, { messageCallback() {} });
  const missing = names.filter((name) => !(name in pyodide.loadedPackages));
  if (missing.length) throw new Error(`${missing.join(", ")}: could not be fetched; this device may be offline`);
}

async function unpackRest(pyodide, wheel) {
  const answer = await fetch(wheel);  // not by Pyodide, for which halfbyte is already loaded
  if (!answer.ok) throw new Error(`${wheel}: the server answered ${answer.status}`);
  unpack(pyodide, await answer.arrayBuffer());
  pyodide.runPython("import importlib; importlib.invalidate_caches()");
}

async function startHandler() {
  const { pyodide, key } = await started;
  await rest();
  const kept = await unpackKept(pyodide, "graphs", key).catch(() => true);
  const before = pyodide.runPython("import sys; set(sys.modules)");
  const { Handler } = pyodide.pyimport("halfbyte.web.graphs.handler");
  if (key && !kept) {
    const bytecode = pyodide.pyimport("halfbyte.web.start").bytecode(before).toJs();
    keepBytecode("graphs", key, bytecode).catch(() => {});  // if storage is full, the next start is slower
  }
  const instance = Handler((json) => self.postMessage(JSON.parse(json)), query.get("backend") ?? "native");
  return (request, files) => instance.handle(JSON.stringify(request), pyodide.toPy(files ?? []));
}

async function graphs({ view, request, files }) {
  try {
    const handle = await handler();
    if (request.ask === "pdf") await (await started).pyodide.loadPackage("pypdf", { messageCallback() {}, errorCallback() {} });
    await handle({ ...request, view }, files);
  } catch (error) {
    say("graphs", { event: "error", view, text: plain(error) });
  }
}

// See feel.py.
async function startFeeling() {
  const { pyodide } = await started;
  await rest();
  const { Feeling } = pyodide.pyimport("halfbyte.web.feel");
  return Feeling(engine, (json) => self.postMessage(JSON.parse(json)));
}

function keep(pyodide, key) {
  const start = pyodide.pyimport("halfbyte.web.start");
  const modules = start.standard_modules().toJs();
  const bytecode = start.bytecode().toJs();
  const keeper = new Worker("keeper.mjs", { type: "module" });
  keeper.onmessage = ({ data }) => {
    keeper.terminate();
    say("kept", { text: data });
  };
  keeper.postMessage({ key, modules, bytecode });
}

const handlers = {
  load: ({ url, keep }) => engine.load_url(url, keep),
  file: ({ files }) => engine.load_files(files),
  shelf: () => engine.shelf(),
  forget: ({ url }) => engine.forget(url),
  cancel: () => engine.cancel(),
  run: ({ prompt, length, temperature, seed, probabilities }) =>
    engine.run(prompt, length, temperature, seed ?? undefined, probabilities),
  chat: async ({ messages, length, temperature, seed }) => {
    await templates();
    await engine.chat(JSON.stringify(messages), length, temperature, seed ?? undefined);
  },
  devices: async () => (await feeling()).devices(),
  feel: async ({ device }) => (await feeling()).choose(device),
  skip: async ({ minutes }) => (await feeling()).skip(minutes),
  graphs,
  stop: () => engine.stop(),
};

const plain = (error) => String(error?.message ?? error).trim().split("\n").pop();

const started = start().catch((error) => {
  say("lost", { text: `halfbyte could not start: ${plain(error)}` });
});

// A lock held until this worker ends, in whatever way: the page waits for it and so knows.
const name = `halfbyte-${performance.timeOrigin}-${Math.random()}`;
locks?.request(name, () => {
  say("held", { name });
  return new Promise(() => {});
}).catch(() => {});

self.onmessage = async ({ data }) => {
  if (data.kind === "there") return say("here");
  await started;
  try {
    await handlers[data.kind](data);
  } catch (error) {
    say("error", { text: plain(error) });
  }
};
