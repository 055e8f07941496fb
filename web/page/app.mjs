// The page: sends what the user does to the worker as messages, and shows the worker's messages.
import { chat } from "./chat.mjs";
import { copying } from "./code.mjs";
import { isolate, keepSite } from "./isolate.mjs";
import { absolute, addressOf, isEncoder, isGraph, link, shelf, showModel, wanted } from "./models.mjs";
import { python } from "./python.mjs";
import { $, megabytes, notices, share } from "./show.mjs";
import { lacking, persist } from "./storage.mjs";
import { storyView } from "./story.mjs";
import { openTab, tablist, tabs } from "./tabs.mjs";
import { writer } from "./writer.mjs";

const TEMPERATURE = 0.8;  // where neither the model's file nor the user says another

const { wait, problem } = notices("");
const query = new URL(location.href).searchParams;

const { start, send } = python({ receive: (data) => onMessage[data.kind]?.(data), lost, silent });
let begun = false;  // whether this Python has started completely
let asked;  // the message that is loading a model
let given;  // the message that loaded the current model, if the user sent it
let again;  // the message to repeat after Python was started again
let restarted = false;  // until the model is back after a restart
let graphs;  // a promise of the views of ONNX models
let open;  // opens a tab
let loading = true;
let site = {};  // what site.json says
let talks = false;  // whether the model has a chat template
let chosen = false;  // whether the user has chosen a temperature
let address = "";  // of the model, if the user gave it

const story = storyView();
const texts = writer({ send, problem, update });
const views = { text: story, chat: chat({ write: texts.write, problem }) };

// Shows a failure of the whole page, in all tabs; `offer` a button that starts Python again.
function failure(text, offer = false) {
  $("failure-text").textContent = text;
  $("failure").hidden = !text;
  $("again").hidden = !offer;
}

// Python's work is lost; its model is to be opened again.
function abandon() {
  texts.abandon();
  [again, given, asked] = [given ?? again, undefined, undefined];
  $("model-name").dataset.loaded = "no";
}

// Python has ended. If it had started completely, it is started again.
function lost(text) {
  abandon();
  if (begun) {
    restart();
    failure(`${text} It has been restarted.`);
  } else {
    loading = false;
    wait();
    failure(`${text.replace(/\.$/, "")}. Start again, or reload the page.`, true);
  }
  update();
}

function silent(yes) {
  failure(yes ? "Python does not respond. It may be busy, or the browser may have ended it." : "", yes);
}

function restart() {
  [begun, loading, restarted] = [false, true, true];
  failure("");
  wait("Starting Python");
  start();
  graphs?.then((all) => {
    all.lost();
    if (openTab() !== "language") all.open(openTab());
  });
  update();
}

function update() {
  const ready = !loading && $("model-name").dataset.loaded === "yes";
  $("run").disabled = !ready;
  $("send").disabled = !ready || !talks;
  $("cancel").hidden = asked?.kind !== "load";
  $("anew").disabled = texts.running();
  $("stop").disabled = $("chat-stop").disabled = !texts.running();
  $("load").disabled = $("file").disabled = texts.busy() || loading;
  $("story").setAttribute("aria-busy", String(texts.running()));
}

function show(name) {
  for (const view of ["text", "chat"]) $(`${view}-view`).hidden = view !== name;
  $("chat-settings").hidden = name !== "chat";
  selectView(name);
}

function showTemperature(value) {
  $("temperature").value = value;
  $("temperature-shown").textContent = Number($("temperature").value).toFixed(1);
}

// The chat needs a model with a template: the site may have one.
function choose(name) {
  if (name === "chat" && !talks && !loading) request({ kind: "load", url: absolute(site.chat_model), keep: false });
  show(name);
}

// Tells a story before anything is asked for, once.
function tell() {
  if (texts.touched() || texts.running() || openTab() !== "language" || $("text-view").hidden) return;
  texts.tell(story, { kind: "run", prompt: $("prompt").value });
  story.begin($("prompt").value);
  update();
}

const onMessage = {
  settings: ({ settings }) => {
    $("version").textContent = settings.version;
    site = settings;
    know(settings);
  },
  step: ({ text }) => wait(text),
  fetched: ({ done, total }) => wait(done < total ? share("Loading Python", done, total) : "Starting Python", done, total),
  progress: ({ done, total }) => wait(
    total ? share("Loading the model", done, total) : `Loading the model: ${megabytes(done)}`, done, total),
  model: (model) => {
    loading = false;
    [given, asked] = [asked, undefined];
    address = given?.url ?? "";
    wait();
    problem("");
    showModel(model);
    talks = model.chat;
    if (!chosen) showTemperature(model.temperature ?? TEMPERATURE);
    $("views").hidden = !(talks || site.chat_model);
    show(talks ? "chat" : "text");
    if (!restarted) for (const view of Object.values(views)) view.loaded();
    if (begun) restarted = false;
    update();
    if (given?.keep) send({ kind: "shelf" });
    if (begun) tell();
  },
  vectors: ({ text }) => {
    const { url, files, keep, handed } = asked ?? { url: absolute(site.model), keep: false };
    loading = false;
    asked = undefined;
    wait();
    update();
    if (handed) problem(text);
    else toSearch({ url, files, keep }, true);
  },
  timing: ({ parts, restored }) => {
    document.documentElement.dataset.restored = String(restored);
    $("timing").textContent = "Ready after " + Object.entries(parts)
      .map(([name, ms]) => `${name} ${(ms / 1000).toFixed(2)} s`).join(", ");
    begun = true;
    if (again) load(again);
    else restarted = false;
    send({ kind: "shelf" });
    if (!again && wanted()) visit(wanted(), false);
    else if (!again) tell();
    again = undefined;
    if (!query.has("fresh")) keepSite(() => { document.documentElement.dataset.kept = "yes"; });
  },
  kept: ({ text }) => { document.documentElement.dataset.start = text; },
  shelf: shelf({ open: visit, remove: (url) => send({ kind: "forget", url }) }),
  cancelled: () => {
    loading = false;
    asked = undefined;
    wait();
    update();
  },
  piece: texts.piece,
  done: texts.done,
  graphs: async (message) => (await graphs)?.receive(message),
  error: ({ text }) => {
    loading = false;
    if (texts.failed()) return;
    asked = undefined;
    wait();
    problem(text);
    update();
  },
};

function load(message) {
  problem("");
  loading = true;
  asked = message;
  wait("Loading the model");
  update();
  send(message);
}

// Loads a model that the user asked for.
function request(message) {
  failure("");
  wait("Loading the model");
  texts.instead(() => load(message));
}

// Loads a model by its address, which the page's address then has too: one in ONNX, or from the
// tab for those, in that tab, and an encoder in that for search.
async function visit(text, touches = true, tab = "") {
  try {
    const url = await addressOf(text, tab === "onnx" ? "onnx" : "gguf");
    persist();
    if (tab === "onnx" || isGraph(url)) {
      if (isGraph(url)) link(url, "#onnx");
      open("onnx");
      (await graphs).fetch("onnx", url);
      return;
    }
    if (tab === "search" || isEncoder(url)) {
      await toSearch({ url, keep: true });
      return;
    }
    link(url, location.hash);
    const message = { kind: "load", url, keep: true };
    if (touches) request(message);
    else load(message);
  } catch (error) {
    if (openTab() === "language") problem(error.message);
    else (await graphs).problem(openTab(), error.message);
  }
}

// Back and Forward: the model that the page had there.
async function back() {
  const url = wanted();
  if ((url ?? "") === address || loading) return;
  if (url && (isGraph(url) || isEncoder(url))) {
    (await graphs)?.fetch(isGraph(url) ? "onnx" : "search", url);
    return;
  }
  if (url) request({ kind: "load", url: await addressOf(url), keep: true });
  else request({ kind: "load", url: absolute(site.model), keep: false });
}

// Gives an encoder, by its address or its files, to the search, which then does not fetch the site's.
// What was `handed` over from here does not come back.
async function toSearch({ url, files, keep }, handed = false) {
  const all = await graphViews();
  if (url) all.fetch("search", url, keep, handed);
  else all.drop("search", files, document.body, handed);
  if (keep) link(url, "#search");
  open("search");
}

// Gives a language model that was meant for the search to the tab that writes.
function toLanguage({ url, files }) {
  open("language");
  if (url) link(url, "");
  request({ ...(url ? { kind: "load", url, keep: true } : { kind: "file", files }), handed: true });
}

// Files go to the open tab; an ONNX file that is dropped on the first tab opens the ONNX tab.
async function dropped(files, place) {
  if (!files.length) return;
  if (openTab() === "language" && files.some((file) => /\.onnx$/i.test(file.name))) open("onnx");
  if (openTab() === "onnx" && files.some((file) => /\.gguf$/i.test(file.name))) open("language");
  if (openTab() !== "language") (await graphs)?.drop(openTab(), files, place);
  else if (!texts.busy() && !loading) request({ kind: "file", files });
}

function graphViews() {
  graphs ??= Promise.all([import("./graphs.mjs"), settings])
    .then(([module, known]) => module.graphs(send, known, (text, tab) => visit(text, true, tab), toLanguage));
  return graphs;
}

async function opened(name) {
  if (name === "language") return;
  try {
    (await graphViews()).open(name);
  } catch (error) {
    graphs = undefined;
    notices(`${name}-`).problem(`This tab could not be loaded. Reload the page to try again. (${error.message})`);
  }
}

function listen() {
  $("run-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if ($("run").disabled) return;
    if (texts.write(story, { kind: "run", prompt: $("prompt").value })) story.begin($("prompt").value);
  });
  $("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("run-form").requestSubmit();
  });
  for (const id of ["stop", "chat-stop"]) $(id).addEventListener("click", texts.stop);
  for (const details of document.querySelectorAll("[data-fold]")) details.open = wide.matches;
  $("prompt").addEventListener("input", texts.touch);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (openTab() !== "language") graphs?.then((all) => all.stop(openTab()));
    else texts.stop();
  });
  $("temperature").addEventListener("input", () => {
    chosen = true;
    showTemperature($("temperature").value);
  });
  $("url-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if ($("load").disabled) return;
    visit($("url").value);
  });
  $("file").addEventListener("change", () => {
    const files = [...$("file").files];
    if (files.length) request({ kind: "file", files });
    $("file").value = "";
  });
  $("again").addEventListener("click", () => {
    abandon();
    restart();
  });
  copying(() => ({
    name: $("model-name").textContent, url: address || absolute(site.model),
    prompt: $("prompt").value, length: Number($("length").value) || 200, temperature: Number($("temperature").value),
  }));
  $("cancel").addEventListener("click", () => send({ kind: "cancel" }));
  window.addEventListener("popstate", back);
  document.addEventListener("submit", () => failure(""));
  for (const name of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(name, (event) => {
      event.preventDefault();
      for (const place of document.querySelectorAll(".drop")) place.classList.toggle("over", name === "dragover");
      if (name === "drop") dropped([...event.dataTransfer.files], event.target);
    });
  }
}

let know;
const settings = new Promise((resolve) => { know = resolve; });
const wide = matchMedia("(min-width: 52.01rem)");
const selectView = tablist(["text", "chat"], choose);
$("unstarted").hidden = true;
self.addEventListener("error", ({ message }) => failure(`The page has failed (${message}). Reload it.`));
self.addEventListener("unhandledrejection", ({ reason }) => failure(`The page has failed (${reason?.message ?? reason}). Reload it.`));
open = tabs(opened);
await isolate();
listen();
start();
wait("Starting Python");
update();
const missing = await lacking();
$("lacking").textContent = missing;
$("lacking").hidden = !missing;
