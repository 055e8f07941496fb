// The page: sends what the user does to the worker as messages, and shows the worker's messages.
import { chat } from "./chat.mjs";
import { copying } from "./code.mjs";
import { isolate, keepSite } from "./isolate.mjs";
import { life } from "./life.mjs";
import { absolute, link, shelf, showModel, wanted } from "./models.mjs";
import { opening } from "./opening.mjs";
import { python } from "./python.mjs";
import { $, notices, share } from "./show.mjs";
import { lacking } from "./storage.mjs";
import { storyView } from "./story.mjs";
import { openTab, tablist } from "./tabs.mjs";
import { writer } from "./writer.mjs";

const TEMPERATURE = 0.8;  // where neither the model's file nor the user says another

const state = {
  begun: false,  // whether this Python has started completely
  loading: true,
  asked: undefined,  // the message that is loading a model
  given: undefined,  // the message that loaded the current model, if the user sent it
  again: undefined,  // the message to repeat after Python was started again
  restarted: false,  // until the model is back after a restart
  address: "",  // of the model, if the user gave it
  site: {},  // what site.json says
  talks: false,  // whether the model has a chat template
  chosen: false,  // whether the user has chosen a temperature
};

const { wait, problem } = notices("");
const query = new URL(location.href).searchParams;
let know;
const settings = new Promise((resolve) => { know = resolve; });
let device;  // a promise of the view of another device, once the user wants to feel one

const { start, send } = python({
  receive: (data) => onMessage[data.kind]?.(data),
  lost: (text) => alive.lost(text),
  silent: (yes) => alive.silent(yes),
});
const story = storyView();
const texts = writer({ send, problem, update });
const views = { text: story, chat: chat({ write: texts.write, problem, enter: () => choose("chat") }) };
const models = opening({ state, settings, send, problem, load, request, busy: texts.busy });
const alive = life({ state, wait, start, abandon: texts.abandon, restarted: models.restarted, update });

function update() {
  const ready = !state.loading && $("model-name").dataset.loaded === "yes";
  $("run").disabled = !ready;
  $("send").disabled = !ready || !state.talks;
  $("cancel").hidden = state.asked?.kind !== "load";
  $("anew").disabled = texts.running();
  $("stop").disabled = $("chat-stop").disabled = !texts.running();
  $("load").disabled = $("file").disabled = texts.busy() || state.loading;
  $("story").setAttribute("aria-busy", String(texts.running()));
}

function show(name) {
  for (const view of ["text", "chat"]) $(`${view}-view`).hidden = $(`${view}-settings`).hidden = view !== name;
  selectView(name);
}

function showTemperature(value) {
  $("temperature").value = value;
  $("temperature-shown").textContent = Number($("temperature").value).toFixed(1);
}

// The chat needs a model with a template: the site may have one.
function choose(name) {
  if (name === "chat" && !state.talks && !state.loading && state.site.chat_model) request({ kind: "load", url: absolute(state.site.chat_model), keep: false });
  show(name);
}

// Tells a story before anything is asked for, once.
function tell() {
  if (texts.touched() || texts.running() || openTab() !== "language" || $("text-view").hidden) return;
  texts.tell(story, { kind: "run", prompt: $("prompt").value });
  story.begin($("prompt").value);
  update();
}

// Python waits for no model any more.
function settled() {
  Object.assign(state, { loading: false, asked: undefined });
  wait();
}

const onMessage = {
  settings: ({ settings: known }) => {
    $("version").textContent = known.version;
    state.site = known;
    know(known);
  },
  step: ({ text }) => wait(text),
  fetched: ({ done, total }) => wait(done < total ? share("Loading Python", done, total) : "Starting Python", done, total),
  progress: ({ done, total }) => wait(share("Loading the model", done, total), done, total),
  model: (model) => {
    state.given = state.asked;
    state.address = state.given?.url ?? "";
    if (state.given && !state.given.keep) link("", location.hash);
    settled();
    problem("");
    showModel(model);
    state.talks = model.chat;
    $("chat-about").hidden = !state.site.chat_model || state.address !== absolute(state.site.chat_model);
    if (!state.chosen) showTemperature(model.temperature ?? TEMPERATURE);
    $("views").classList.remove("coming");
    $("views").hidden = !(state.talks || state.site.chat_model);
    show(state.talks ? "chat" : "text");
    if (!state.restarted) for (const view of Object.values(views)) view.loaded();
    if (state.begun) state.restarted = false;
    update();
    device?.then((view) => view.loaded());
    if (state.given?.keep) send({ kind: "shelf" });
    if (state.begun) tell();
    models.settled();
  },
  vectors: ({ text }) => {
    const { url, files, keep, handed } = state.asked ?? { url: absolute(state.site.model), keep: false };
    settled();
    update();
    if (handed) problem(text);
    else models.toSearch({ url, files, keep }, true);
  },
  timing: ({ parts, restored }) => {
    const { again } = state;
    document.documentElement.dataset.restored = String(restored);
    $("timing").textContent = "Ready after " + Object.entries(parts)
      .map(([name, ms]) => `${name} ${(ms / 1000).toFixed(2)} s`).join(", ");
    state.begun = true;
    if (again) load(again);
    else state.restarted = false;
    send({ kind: "shelf" });
    if (!again && wanted()) models.visit(wanted(), false);
    else if (!again && views.chat.resumes()) choose("chat");
    else if (!again) tell();
    state.again = undefined;
    if (!query.has("fresh")) keepSite(() => { document.documentElement.dataset.kept = "yes"; });
  },
  kept: ({ text }) => { document.documentElement.dataset.start = text; },
  shelf: shelf({ open: models.visit, remove: (url) => send({ kind: "forget", url }) }),
  cancelled: () => {
    settled();
    update();
    send({ kind: "shelf" });  // with what has arrived
    models.settled();
  },
  piece: texts.piece,
  done: texts.done,
  graphs: models.receive,
  devices: async (message) => (await device)?.devices(message),
  device: async (message) => (await device)?.show(message),
  error: ({ text }) => {
    state.loading = false;
    if (texts.failed()) return;
    settled();
    problem(text);
    update();
    models.settled();
  },
};

function load(message) {
  problem("");
  state.loading = true;
  state.asked = message;
  wait("Loading the model");
  update();
  send(message);
}

// Loads a model that the user asked for.
function request(message) {
  alive.failure("");
  wait("Loading the model");
  texts.instead(() => load(message));
}

// The model's address, for a page that uses it: that of a file is one beside that page.
const address = () => state.address || (state.given?.kind === "file" ? $("model-name").textContent : absolute(state.site.model));

// Another device is felt from here on.
async function feel() {
  $("feel").disabled = true;
  try {
    device = import("./device.mjs").then(({ deviceView }) => deviceView({ send }));
    await device;
  } catch (error) {
    device = undefined;
    $("feel").disabled = false;
    problem(`This part of the page could not be loaded. (${error.message})`);
  }
}

function listen() {
  models.listen();
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
    if (openTab() !== "language") models.stop(openTab());
    else texts.stop();
  });
  $("temperature").addEventListener("input", () => {
    state.chosen = true;
    showTemperature($("temperature").value);
  });
  $("feel").addEventListener("click", feel);
  copying(() => ({
    name: $("model-name").textContent, url: address(),
    prompt: $("prompt").value, length: Number($("length").value) || 200, temperature: Number($("temperature").value),
  }));
  $("cancel").addEventListener("click", () => send({ kind: "cancel" }));
}

const wide = matchMedia("(min-width: 52.01rem)");
const selectView = tablist(["text", "chat"], choose);
$("unstarted").hidden = true;
self.addEventListener("error", ({ message }) => alive.failure(`The page has failed (${message}). Reload it.`));
self.addEventListener("unhandledrejection", ({ reason }) => alive.failure(`The page has failed (${reason?.message ?? reason}). Reload it.`));
await isolate();
listen();
start();
wait("Starting Python");
update();
const missing = await lacking();
$("lacking").textContent = missing;
$("lacking").hidden = !missing;
