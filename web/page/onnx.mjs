// The view of any ONNX model: its inputs, runs and outputs.
import { inputs } from "./inputs.mjs";
import { $, classes, make, megabytes, milliseconds, notices } from "./show.mjs";

export function onnx(ask, side) {
  const { wait, problem } = notices("onnx-");
  const form = inputs($("inputs"), problem);
  const card = side("onnx", {
    drop: "Drop an ONNX model here, optionally with labels (.txt, .json), a tokenizer.json or a picture, or",
    accept: ".onnx,.json,.txt,.model,image/*",
    take,
  });
  let ready = false;
  let busy = false;
  let pictures = [];  // dropped together with a model
  let given = [];  // the files of the current model
  let opening = [];  // files that are being opened
  let facts = [];

  function update() {
    $("onnx-run").disabled = !ready || busy;
    $("onnx-stop").disabled = !(busy && ready);
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
    wait();
    update();
  }

  async function take(files) {
    if (busy) return;
    problem("");
    pictures = files.filter((file) => file.type.startsWith("image/"));
    const others = files.filter((file) => !pictures.includes(file));
    if (others.length) load(others);
    else await place();
  }

  function load(files) {
    opening = files;
    begin("Loading", { ask: "open" }, files);
  }

  async function place() {
    try {
      for (const picture of pictures.splice(0)) await form.picture(picture);
    } catch (error) {
      problem(error.message);
    }
  }

  const declared = ({ name, type, declared: shape }) => `${name}: ${type} [${shape.join(", ")}]`;

  const on = {
    progress: ({ text, done, total }) => wait(`${text}: ${megabytes(done)} of ${megabytes(total)}`, done, total),
    model: (model) => {
      ready = true;
      given = model.fresh ? opening : [...given, ...opening];
      end();
      $("onnx-form").hidden = false;
      $("onnx-none").hidden = true;
      form.show(model.inputs, model.tokenizer, model.fresh);
      $("declared").textContent = model.outputs.map(declared).join("; ");
      if (model.fresh) $("outputs").replaceChildren();
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
      $("kernel-share").textContent = seconds.length ? `${Math.round(100 * kernels)}` : "–";
      $("onnx-state").textContent = `${seconds.length + 1} runs of ${fed.join(", ")}`;
      card.show(model, facts);
    },
    error: ({ text }) => {
      [opening, pictures] = [[], []];
      end();
      problem(text);
    },
  };

  $("onnx-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if ($("onnx-run").disabled) return;
    const { asked, pixels } = form.collect();
    $("onnx-state").textContent = "";
    begin("Running", { ask: "run", inputs: asked }, pixels);
  });
  $("onnx-stop").addEventListener("click", () => ask({ ask: "stop" }));
  update();
  return {
    on,
    take,
    has: () => ready,
    stop: () => { if (busy) ask({ ask: "stop" }); },
    // Python was restarted without the model; `open` loads it again.
    lost() {
      ready = false;
      [opening, pictures] = [[], []];
      end();
      $("onnx-form").hidden = true;
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
