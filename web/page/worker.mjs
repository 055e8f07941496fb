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
let rest;  // a promise of the part of halfbyte that the page starts without
let feeling;  // a promise of what lets texts be felt as on another device
let handler;  // a promise of the function that answers requests for ONNX models
let templates;  // a promise of Jinja and its limits, once a model has a chat template

function mark(name) {
  parts[name] = performance.now() - last;
  last = performance.now();
}

const say = (kind, content) => self.postMessage({ kind, ...content });

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
  engine = Engine((json) => {
    const message = JSON.parse(json);
    if (message.kind === "model" && message.chat) {
      message.chat = settings.chat.length > 0;
      if (settings.chat.length) templates ??= loadTemplates(pyodide, settings);
      else message.notes.push("This page was built without Jinja (pip install 'halfbyte[chat]'), so it cannot chat.");
    }
    if (message.kind === "piece") message.heap = pyodide._module?.HEAPU8.length;
    self.postMessage(message);
  }, query.get("backend") ?? "native", () => unpackRest(pyodide, settings.wheel));
  mark("halfbyte");
  await engine.load_url(model, false, fetcher);
  mark("model");
  say("timing", { parts, restored: fromSnapshot });
  if (key && !fromSnapshot && await keeps()) keep(pyodide, key);
  return { pyodide, key, wheel: settings.wheel };
}

// Jinja for templates, markdown-it for answers.
function loadTemplates(pyodide, { chat, wheel }) {
  return Promise.all([pyodide.loadPackage(chat, { messageCallback() {} }), unpackRest(pyodide, wheel)]);
}

function unpackRest(pyodide, wheel) {
  rest ??= (async () => {
    const answer = await fetch(wheel);  // not by Pyodide, for which halfbyte is already loaded
    if (!answer.ok) throw new Error(`${wheel}: the server answered ${answer.status}`);
    unpack(pyodide, await answer.arrayBuffer());
    pyodide.runPython("import importlib; importlib.invalidate_caches()");
  })();
  return rest.catch((error) => {
    rest = undefined;
    throw error;
  });
}

async function startHandler() {
  const { pyodide, key, wheel } = await started;
  await unpackRest(pyodide, wheel);
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
    handler ??= startHandler();
    if (request.ask === "pdf") await (await started).pyodide.loadPackage("pypdf", { messageCallback() {}, errorCallback() {} });
    await (await handler)(request, files);
  } catch (error) {
    handler = undefined;
    say("graphs", { event: "error", view, text: plain(error) });
  }
}

// See feel.py; it is loaded at the first request.
function feel() {
  feeling ??= (async () => {
    const { pyodide, wheel } = await started;
    await unpackRest(pyodide, wheel);
    const { Feeling } = pyodide.pyimport("halfbyte.web.feel");
    return Feeling(engine, (json) => self.postMessage(JSON.parse(json)));
  })();
  return feeling.catch((error) => {
    feeling = undefined;
    throw error;
  });
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
    await templates;
    await engine.chat(JSON.stringify(messages), length, temperature, seed ?? undefined);
  },
  devices: async () => (await feel()).devices(),
  feel: async ({ device }) => (await feel()).choose(device),
  skip: async ({ minutes }) => (await feel()).skip(minutes),
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
