// The page: sends what the user does to the worker as messages, and shows the worker's messages.
import { chat } from "./chat.mjs";
import { isolate } from "./isolate.mjs";
import { python } from "./python.mjs";
import { $, megabytes, notices, runsOn, showMemory } from "./show.mjs";
import { lacking, persist } from "./storage.mjs";
import { openTab, tabs } from "./tabs.mjs";

const { wait, problem } = notices("");

const { start, send } = python({ receive: (data) => onMessage[data.kind]?.(data), lost, silent });
let begun = false;  // whether this Python has started completely
let asked;  // the message that is loading a model
let given;  // the message that loaded the current model, if the user sent it
let again;  // the message to repeat after Python was started again
let restarted = false;  // until the model is back after a restart
let graphs;  // a promise of the views of ONNX models
let open;  // opens a tab
let running = false;
let loading = true;
let firstPiece = 0;
let shown;  // the view whose text is being generated

const story = {
  speed: $("speed"),
  piece: (text) => { $("written").textContent += text; },
  done: () => {},
  loaded: () => {},
};
const views = { text: story, chat: chat({ write, problem }) };

const tokens = (count) => `${count} token${count === 1 ? "" : "s"}`;
const speed = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));

// Shows a failure of the whole page, in all tabs; `offer` a button that starts Python again.
function failure(text, offer = false) {
  $("failure-text").textContent = text;
  $("failure").hidden = !text;
  $("again").hidden = !offer;
}

// Python has ended, and its work is lost. If it had started completely, it is started again.
function lost(text) {
  if (running) shown.done();
  running = false;
  [again, given, asked] = [given, undefined, undefined];
  $("model-name").dataset.loaded = "no";
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
  $("send").disabled = !ready || $("chat-tab").disabled;
  $("anew").disabled = running;
  $("stop").disabled = $("chat-stop").disabled = !running;
  $("load").disabled = $("file").disabled = running || loading;
  $("story").setAttribute("aria-busy", String(running));
}

function show(name) {
  $("run-form").hidden = $("story").hidden = name !== "text";
  $("chat-view").hidden = name !== "chat";
  for (const view of ["text", "chat"]) $(`${view}-tab`).setAttribute("aria-selected", String(view === name));
  $(name === "chat" ? "chat-controls" : "run-controls").append($("controls"));
}

// Asks the worker to generate a text, which `view` shows.
function write(view, message) {
  if (running) {
    problem("A text is already being generated. Stop it first (or press Esc).");
    return false;
  }
  problem("");
  running = true;
  firstPiece = 0;
  shown = view;
  view.speed.textContent = "";
  update();
  const seed = $("seed").value;
  send({
    ...message,
    length: Number($("length").value) || 200,
    temperature: Number($("temperature").value),
    seed: seed === "" ? null : Number(seed),
  });
  return true;
}

function showModel(model) {
  $("model-name").textContent = model.name;
  $("model-name").dataset.loaded = "yes";
  $("model-facts").textContent =
    `${megabytes(model.bytes)} of weights, mostly ${model.type}; ` +
    `${model.vocabulary.toLocaleString("en")} tokens; context ${model.context.toLocaleString("en")}`;
  $("machine").textContent = runsOn(model.backend, model.threads, model.alone);
  $("notes").textContent = model.notes.join(" ");
  $("notes").hidden = !model.notes.length;
  $("length").max = model.context;
  $("chat-tab").disabled = !model.chat;
  $("views").hidden = !model.chat;
  show(model.chat ? "chat" : "text");
  if (!restarted) for (const view of Object.values(views)) view.loaded();
  showMemory($("memory-bar"), $("memory"), model.memory);
}

const onMessage = {
  settings: ({ settings }) => {
    $("version").textContent = settings.version;
    know(settings);
  },
  step: ({ text }) => wait(text),
  progress: ({ done, total }) => wait(
    total ? `Loading the model: ${megabytes(done)} of ${megabytes(total)}` : `Loading the model: ${megabytes(done)}`,
    done, total),
  model: (model) => {
    loading = false;
    [given, asked] = [asked, undefined];
    wait();
    problem("");
    showModel(model);
    if (begun) restarted = false;
    update();
  },
  timing: ({ parts, restored }) => {
    document.documentElement.dataset.restored = String(restored);
    $("timing").textContent = "Ready after " + Object.entries(parts)
      .map(([name, ms]) => `${name} ${(ms / 1000).toFixed(2)} s`).join(", ");
    begun = true;
    if (again) load(again);
    else restarted = false;
    again = undefined;
  },
  kept: ({ text }) => { document.documentElement.dataset.start = text; },
  piece: ({ text, tokens: count }) => {
    firstPiece ||= performance.now();
    shown.piece(text);
    const seconds = (performance.now() - firstPiece) / 1000;
    if (count > 1 && seconds > 0) shown.speed.textContent = `${tokens(count)}, ${speed((count - 1) / seconds)} tokens/s`;
  },
  done: (result) => {
    running = false;
    problem("");
    $("decode-speed").textContent = result.decode_speed ? speed(result.decode_speed) : "–";
    $("prompt-speed").textContent = speed(result.prompt_speed);
    $("first-token").textContent = (1000 * result.first_token).toFixed(0);
    shown.speed.textContent = `${tokens(result.tokens)}${result.stopped ? ", stopped" : ""}`;
    shown.done(result);
    update();
  },
  graphs: async (message) => (await graphs)?.receive(message),
  error: ({ text }) => {
    if (running) shown.done();
    running = loading = false;
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
  load(message);
}

// Files go to the open tab; an ONNX file that is dropped on the first tab opens the ONNX tab.
async function dropped(files) {
  if (!files.length) return;
  if (openTab() === "language" && files.some((file) => /\.onnx$/i.test(file.name))) open("onnx");
  if (openTab() !== "language") (await graphs)?.drop(openTab(), files);
  else if (!running && !loading) request({ kind: "file", file: files[0] });
}

async function opened(name) {
  if (name === "language") return;
  try {
    graphs ??= Promise.all([import("./graphs.mjs"), settings]).then(([module, known]) => module.graphs(send, known));
    (await graphs).open(name);
  } catch (error) {
    graphs = undefined;
    notices(`${name}-`).problem(`This tab could not be loaded. Reload the page to try again. (${error.message})`);
  }
}

function listen() {
  $("run-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if ($("run").disabled) return;
    if (!write(story, { kind: "run", prompt: $("prompt").value })) return;
    $("begun").textContent = $("prompt").value;
    $("written").textContent = "";
  });
  $("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("run-form").requestSubmit();
  });
  for (const id of ["stop", "chat-stop"]) $(id).addEventListener("click", () => send({ kind: "stop" }));
  for (const name of ["text", "chat"]) $(`${name}-tab`).addEventListener("click", () => show(name));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (openTab() !== "language") graphs?.then((all) => all.stop(openTab()));
    else if (running) send({ kind: "stop" });
  });
  $("temperature").addEventListener("input", () => {
    $("temperature-shown").textContent = Number($("temperature").value).toFixed(1);
  });
  $("url-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if ($("load").disabled) return;
    persist();
    request({ kind: "load", url: $("url").value, keep: true });
  });
  $("file").addEventListener("change", () => {
    const [file] = $("file").files;
    if (file) request({ kind: "file", file });
    $("file").value = "";
  });
  $("again").addEventListener("click", restart);
  document.addEventListener("submit", () => failure(""));
  for (const name of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(name, (event) => {
      event.preventDefault();
      for (const place of document.querySelectorAll(".drop")) place.classList.toggle("over", name === "dragover");
      if (name === "drop") dropped([...event.dataTransfer.files]);
    });
  }
}

let know;
const settings = new Promise((resolve) => { know = resolve; });
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
