// The view of any ONNX model: its inputs, runs and outputs.
import { inputs } from "./inputs.mjs";
import { $, classes, make, milliseconds, notices, share } from "./show.mjs";

const isSense = (file) => /^(image|audio)\//.test(file.type);

// `names` is the address of the names of ImageNet's classes, `visit` opens a model by its address.
export function onnx(ask, side, names, visit) {
  const { wait, problem } = notices("onnx-");
  const form = inputs($("inputs"), problem);
  const card = side("onnx", {
    drop: "Drop an ONNX model here, optionally with labels (.txt, .json), a tokenizer.json, a picture or a sound, or",
    accept: ".onnx,.json,.txt,.model,image/*,audio/*",
    take,
  });
  let ready = false;
  let busy = false;
  let senses = [];  // pictures and sounds, dropped together with a model
  let given = [];  // the files of the current model, or its `{ url }`
  let opening = [];  // those that are being opened
  let facts = [];

  function update() {
    $("onnx-run").disabled = !ready || busy;
    $("onnx-stop").disabled = !(busy && ready);
    $("onnx-load").disabled = busy;
    card.busy(busy);
    $("outputs").setAttribute("aria-busy", String(busy));
  }

  function begin(text, request, files) {
    problem("");
    busy = true;
    wait(text);
    update();
    ask(request, files);
  }

  function end() {
    busy = false;
    $("onnx-cancel").hidden = true;
    wait();
    update();
  }

  async function take(files) {
    if (busy) return;
    problem("");
    senses = files.filter(isSense);
    const others = files.filter((file) => !senses.includes(file));
    if (others.length) load(others);
    else await place();
  }

  function load(files) {
    opening = files;
    const url = files.find((file) => file.url)?.url;
    begin(url ? "Loading the model" : "Loading", { ask: "open", url }, files.filter((file) => !file.url));
    $("onnx-cancel").hidden = !url;
  }

  async function place() {
    try {
      for (const file of senses.splice(0)) await form.take(file);
    } catch (error) {
      problem(error.message);
    }
  }

  const declared = ({ name, type, declared: shape }) => `${name}: ${type} [${shape.join(", ")}]`;

  const on = {
    progress: ({ text, done, total }) => wait(share(text, done, total), done, total),
    model: (model) => {
      ready = true;
      given = model.fresh ? opening : [...given, ...opening];
      end();
      $("onnx-form").hidden = false;
      $("onnx-none").hidden = true;
      form.show(model.inputs, model.tokenizer, model.fresh);
      $("declared").textContent = model.outputs.map(declared).join("; ");
      if (model.fresh) {
        $("outputs").replaceChildren();
        $("run-figures").hidden = true;
      }
      const { labels } = model;
      facts = [labels ? `${labels.toLocaleString("en")} labels` : "", model.tokenizer ? "a tokenizer" : ""].filter(Boolean);
      card.show(model, facts);
      place();
    },
    result: ({ outputs, first, seconds, kernels, fed, ...model }) => {
      end();
      $("outputs").replaceChildren(...outputs.map(showOutput));
      const sorted = [...seconds].sort((a, b) => a - b);
      $("run-time").textContent = seconds.length ? milliseconds(sorted[Math.floor(sorted.length / 2)]) : "–";
      $("first-time").textContent = milliseconds(first);
      $("run-figures").hidden = false;
      $("kernel-share").textContent = seconds.length ? `${Math.round(100 * kernels)}` : "–";
      $("onnx-state").textContent = `${seconds.length + 1} runs of ${fed.join(", ")}`;
      card.show(model, facts);
    },
    stopped: () => {
      opening = [];
      end();
    },
    error: ({ text }) => {
      [opening, senses] = [[], []];
      end();
      problem(text);
    },
  };

  $("onnx-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if ($("onnx-run").disabled) return;
    const { asked, files } = form.collect();
    $("onnx-state").textContent = "";
    begin("Running", { ask: "run", inputs: asked, names }, files);
  });
  $("onnx-url-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!busy) visit($("onnx-url").value);
  });
  for (const id of ["onnx-stop", "onnx-cancel"]) $(id).addEventListener("click", () => ask({ ask: "stop" }));
  update();
  return {
    on,
    take,
    takes: (file) => ready && form.takes(file),
    problem,
    // A model from an address, unless it is the one that is open.
    fetch(url) {
      if (!busy && (!ready || given[0]?.url !== url)) load([{ url }]);
    },
    stop: () => { if (busy) ask({ ask: "stop" }); },
    // Python was restarted without the model; `open` loads it again.
    lost() {
      ready = false;
      [opening, senses] = [[], []];
      end();
      $("onnx-form").hidden = $("run-figures").hidden = true;
      $("onnx-none").hidden = false;
    },
    open() {
      if (!ready && !busy && given.length) load(given);
    },
  };
}

function showOutput({ name, type, shape, first, best, softmax, ...more }) {
  const section = make("section", { class: "output" },
    make("h3", {}, name, " ", make("span", { class: "unit", textContent: `${type} [${shape.join(", ")}]` })));
  if (best) section.append(classes(best, `Best classes${softmax ? ", as softmax" : ""}`));
  if (first.length) section.append(values(first, shape, more));
  return section;
}

function values(first, shape, { least, most, mean }) {
  const count = shape.reduce((product, size) => product * size, 1);
  const more = count > first.length ? ", …" : "";
  const range = least === undefined ? "" : ` — from ${least} to ${most}, mean ${mean}`;
  return make("p", { class: "values", textContent: `${first.join(", ")}${more}${range}` });
}
