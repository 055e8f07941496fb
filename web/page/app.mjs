// The page: what a person does becomes a message to the worker, what the worker says is shown.
import { chat } from "./chat.mjs";
import { isolate } from "./isolate.mjs";

const $ = (id) => document.getElementById(id);
const COLOURS = ["#1f6f5c", "#5cc4a6", "#e0a030", "#b5651d", "#5b7db1", "#9a9a9a"];
const BACKENDS = {
  "native-relaxed": "WebAssembly, relaxed SIMD",
  "native-simd128": "WebAssembly SIMD (128 bits)",
  numpy: "NumPy, without SIMD",
};

let worker;
let running = false;
let loading = true;
let firstPiece = 0;
let shown;  // the view whose text is being written

const story = {
  speed: $("speed"),
  piece: (text) => { $("written").textContent += text; },
  done: () => {},
  loaded: () => {},
};
const views = { text: story, chat: chat({ write, problem }) };

const megabytes = (bytes) => {
  const value = bytes / 1e6;
  return `${value >= 100 ? value.toFixed(0) : value.toFixed(value >= 1 ? 1 : 2)} MB`;
};
const tokens = (count) => `${count} token${count === 1 ? "" : "s"}`;
const speed = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));

function problem(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
  if (text) $("problem").scrollIntoView({ block: "nearest" });
}

function wait(text, done, total) {
  $("wait").hidden = !text;
  $("wait-text").textContent = text ?? "";
  if (total) {
    $("progress").max = total;
    $("progress").value = done;
  } else {
    $("progress").removeAttribute("value");
  }
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

// Asks the worker for a text, which `view` shows.
function write(view, message) {
  if (running) {
    problem("A text is being written already. Stop it first (or press Esc).");
    return false;
  }
  problem("");
  running = true;
  firstPiece = 0;
  shown = view;
  view.speed.textContent = "";
  update();
  const seed = $("seed").value;
  worker.postMessage({
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
    `${megabytes(model.bytes)} of weights, most in ${model.type}; ` +
    `${model.vocabulary.toLocaleString("en")} tokens; context ${model.context.toLocaleString("en")}`;
  $("machine").textContent =
    `${BACKENDS[model.backend] ?? model.backend}, ${model.threads} thread${model.threads > 1 ? "s" : ""}` +
    `${self.crossOriginIsolated ? "" : "; this page is not cross-origin isolated"}`;
  $("notes").textContent = model.notes.join(" ");
  $("notes").hidden = !model.notes.length;
  $("length").max = model.context;
  $("chat-tab").disabled = !model.chat;
  $("views").hidden = !model.chat;
  show(model.chat ? "chat" : "text");
  for (const view of Object.values(views)) view.loaded();
  showMemory(model.memory);
}

function showMemory(memory) {
  const rows = Object.entries(memory).sort(([, a], [, b]) => b - a);
  const total = rows.reduce((sum, [, bytes]) => sum + bytes, 0);
  $("memory-bar").replaceChildren(...rows.map(([, bytes], i) => {
    const part = document.createElement("span");
    part.style.flexGrow = bytes;
    part.style.background = COLOURS[i % COLOURS.length];
    return part;
  }));
  $("memory").tBodies[0].replaceChildren();
  [...rows, ["in all", total]].forEach(([name, bytes], i) => {
    const row = $("memory").tBodies[0].insertRow();
    const mark = document.createElement("i");
    mark.style.background = i < rows.length ? COLOURS[i % COLOURS.length] : "transparent";
    row.insertCell().append(mark, name);
    row.insertCell().textContent = megabytes(bytes);
  });
}

const onMessage = {
  step: ({ text }) => wait(text),
  progress: ({ done, total }) => wait(
    total ? `Loading the model: ${megabytes(done)} of ${megabytes(total)}` : `Loading the model: ${megabytes(done)}`,
    done, total),
  model: (model) => {
    loading = false;
    wait();
    problem("");
    showModel(model);
    update();
  },
  timing: ({ parts, restored }) => {
    document.documentElement.dataset.restored = String(restored);
    $("timing").textContent = "Ready after " + Object.entries(parts)
      .map(([name, ms]) => `${name} ${(ms / 1000).toFixed(2)} s`).join(", ");
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
  error: ({ text }) => {
    if (running) shown.done();
    running = loading = false;
    wait();
    problem(text);
    update();
  },
};

function load(message) {
  problem("");
  loading = true;
  wait("Loading the model");
  update();
  worker.postMessage(message);
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
  for (const id of ["stop", "chat-stop"]) $(id).addEventListener("click", () => worker.postMessage({ kind: "stop" }));
  for (const name of ["text", "chat"]) $(`${name}-tab`).addEventListener("click", () => show(name));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running) worker.postMessage({ kind: "stop" });
  });
  $("temperature").addEventListener("input", () => {
    $("temperature-shown").textContent = Number($("temperature").value).toFixed(1);
  });
  $("url-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if ($("load").disabled) return;
    navigator.storage?.persist?.();  // a worker cannot ask
    load({ kind: "load", url: $("url").value, keep: true });
  });
  $("file").addEventListener("change", () => {
    const [file] = $("file").files;
    if (file) load({ kind: "file", file });
    $("file").value = "";
  });
  for (const name of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(name, (event) => {
      event.preventDefault();
      $("drop").classList.toggle("over", name === "dragover");
      const file = name === "drop" && event.dataTransfer.files[0];
      if (file && !running && !loading) load({ kind: "file", file });
    });
  }
}

await isolate();
listen();
const query = location.search;
worker = new Worker(`worker.mjs${query}`, { type: "module" });
worker.onmessage = ({ data }) => onMessage[data.kind]?.(data);
worker.onerror = (event) => onMessage.error({ text: `The page's worker failed: ${event.message ?? "it could not be loaded"}` });
wait("Starting Python");
update();
fetch("site.json").then((answer) => answer.json()).then(({ version }) => { $("version").textContent = version; });
