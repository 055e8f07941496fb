// The form for a model's inputs: a picture, a sound, a text, or numbers.
import { fileOf, make } from "./show.mjs";
import { RATE, record, samplesOf, spanOf } from "./sound.mjs";

const MAX_SIDE = 4096;  // pixels
const FOLLOW = ["mask", "types", "positions"];  // computed from a text's tokens
const SCALES = [["unit", "0 … 1"], ["signed", "−1 … 1"], ["imagenet", "ImageNet's mean and deviation"], ["raw", "0 … 255"]];
const FITS = [["crop", "Crop the middle"], ["whole", "Whole picture on white"], ["stretch", "Stretch"]];
const FILLS = [["random", "Random"], ["zeros", "Zeros"], ["ones", "Ones"], ["count", "0, 1, 2, …"], ["values", "Values"]];

let count = 0;

function labelled(text, control) {
  control.id ||= `field-${count += 1}`;
  return make("label", { htmlFor: control.id }, text, control);
}

const select = (options) => make("select", {}, ...options.map(([value, text]) => new Option(text, value)));
const number = (value, max = 1e6) => make("input", { type: "number", min: 1, max, value, required: true });

// Draws a picture into [height, width] and returns its pixels.
export function pixels(canvas, bitmap, height, width, fit) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  const factors = [width / bitmap.width, height / bitmap.height];
  const factor = fit === "crop" ? Math.max(...factors) : Math.min(...factors);
  const [w, h] = fit === "stretch" ? [width, height] : [bitmap.width * factor, bitmap.height * factor];
  context.drawImage(bitmap, (width - w) / 2, (height - h) / 2, w, h);
  return new Uint8Array(context.getImageData(0, 0, width, height).data.buffer);
}

// Controls for numbers: how to fill the input, and the model's open sizes.
function numbers(input, more = []) {
  const fill = select([...more, ...FILLS]);
  const sizes = input.open.map((place) => number(input.shape[place]));
  const text = make("textarea", { rows: 2, spellcheck: false, placeholder: "1, 2, 3 …" });
  const typed = labelled("Values", text);
  const open = make("div", { class: "controls" }, ...sizes.map((size, i) => labelled(String(input.declared[input.open[i]]), size)));
  const update = () => {
    typed.hidden = fill.value !== "values";
    open.hidden = ["picture", "sound"].includes(fill.value) || !sizes.length;
  };
  fill.addEventListener("change", update);
  update();
  return {
    fill,
    update,
    content: [labelled("Fill with", fill), open, typed],
    value() {
      const shape = [...input.shape];
      input.open.forEach((place, i) => { shape[place] = Number(sizes[i].value); });
      return { role: "numbers", fill: fill.value, text: text.value, shape };
    },
  };
}

// A button that gets a file from `source` and hands it to `take`; `report` shows why that failed.
function giver(text, source, take, report) {
  const button = make("button", { type: "button", textContent: text });
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await take(await source());
    } catch (error) {
      report(error.message);
    }
    button.disabled = false;
  });
  return button;
}

function picture(input, problem) {
  const chosen = numbers(input, [["picture", "A picture"]]);
  const file = make("input", { type: "file", accept: "image/*", class: "unseen-file" });
  const canvas = make("canvas", { width: 0, height: 0, hidden: true, role: "img", "aria-label": "The picture as the model receives it" });
  const [height, width] = [number(input.height, MAX_SIDE), number(input.width, MAX_SIDE)];
  const [scale, fit] = [select(SCALES), select(FITS)];
  scale.value = input.scale;
  const invert = make("input", { type: "checkbox" });
  const choose = labelled("Choose a picture", file);
  choose.className = "button";
  const size = make("div", { class: "controls" }, labelled("Height", height), labelled("Width", width));
  size.hidden = !input.open.some((place) => input.shape[place] > 4);
  const options = make("div", { class: "picture" }, make("div", { class: "row wraps" }, file, choose,
    giver("Look at the photo", () => fileOf("coffee.jpg"), (photo) => take(photo), problem), canvas), size,
    make("div", { class: "controls" }, labelled("Values", scale), labelled("Fit", fit), labelled("Invert ", invert)));
  let bitmap;
  const draw = () => {
    canvas.hidden = !bitmap;
    return bitmap && pixels(canvas, bitmap, Number(height.value), Number(width.value), fit.value);
  };
  const showOptions = () => { options.hidden = chosen.fill.value !== "picture"; };
  chosen.fill.addEventListener("change", showOptions);
  for (const control of [height, width, fit]) control.addEventListener("change", draw);

  async function take(from) {
    try {
      bitmap = await createImageBitmap(from);
    } catch {
      throw new Error(`${from.name}: not a picture that this browser can read`);
    }
    chosen.fill.value = "picture";
    chosen.update();
    showOptions();
    draw();
  }

  file.addEventListener("change", () => {
    if (file.files.length) take(file.files[0]).catch((error) => problem(error.message));
  });
  return {
    kind: "image",
    take,
    content: [...chosen.content, options],
    value() {
      if (chosen.fill.value !== "picture") return chosen.value();
      return {
        role: "picture", height: Number(height.value), width: Number(width.value), scale: scale.value, invert: invert.checked,
      };
    },
    data: draw,
  };
}

function sound(input, problem) {
  const chosen = numbers(input, [["sound", "A sound"]]);
  const file = make("input", { type: "file", accept: "audio/*", class: "unseen-file" });
  const choose = labelled("Choose a sound", file);
  choose.className = "button";
  const rate = number(RATE, 48_000);
  rate.min = 8000;
  const heard = make("p", { class: "quiet" });
  let given;  // a file, which is decoded at the rate asked for
  let samples;

  async function take(from) {
    const sound = await samplesOf(from, Number(rate.value));
    ({ samples } = sound);
    given = from;
    heard.textContent = `${from.name}: ${spanOf(sound)}, ${samples.length.toLocaleString("en")} samples`;
    chosen.fill.value = "sound";
    chosen.update();
    showOptions();
  }

  const report = (error) => problem(error.message);
  const options = make("div", {}, make("div", { class: "row wraps" }, file, choose,
    giver("Record", record, take, problem), giver("Hear the word", () => fileOf("speech.wav"), take, problem)), heard,
  make("div", { class: "controls" }, labelled("Samples per second", rate)));
  const showOptions = () => { options.hidden = chosen.fill.value !== "sound"; };
  chosen.fill.addEventListener("change", showOptions);
  file.addEventListener("change", () => { if (file.files.length) take(file.files[0]).catch(report); });
  rate.addEventListener("change", () => { if (given && rate.checkValidity()) take(given).catch(report); });
  return {
    kind: "audio",
    take,
    content: [...chosen.content, options],
    value: () => (chosen.fill.value === "sound" ? { role: "sound" } : chosen.value()),
    data: () => samples && new Uint8Array(samples.buffer),
  };
}

function written(input, tokenizer) {
  const text = make("textarea", { rows: 3 });
  const label = input.role === "ids" && !tokenizer ? "Token ids (to enter text, drop the model's tokenizer.json)" : "Text";
  return { content: [labelled(label, text)], value: () => ({ role: input.role, text: text.value }), text };
}

function control(input, tokenizer, problem) {
  if (input.role === "picture") return picture(input, problem);
  if (input.role === "sound") return sound(input, problem);
  if (input.role === "numbers") return numbers(input);
  if (FOLLOW.includes(input.role)) return { value: () => ({ role: input.role }) };
  if (input.role === "none") {
    return { content: [make("p", { class: "quiet", textContent: "This page cannot fill this input." })], value: () => ({ role: "none" }) };
  }
  return written(input, tokenizer);
}

// `problem` shows why a chosen picture or sound cannot be used.
export function inputs(box, problem) {
  let controls = {};
  return {
    // `anew` is false if only labels or a tokenizer were added: the form keeps its values.
    show(described, tokenizer, anew) {
      const before = anew ? {} : controls;
      controls = {};
      const follow = described.filter((input) => FOLLOW.includes(input.role)).map((input) => input.name);
      const fields = described.map((input) => {
        const field = before[input.name] && !before[input.name].text ? before[input.name] : control(input, tokenizer, problem);
        if (field.text && before[input.name]) field.text.value = before[input.name].text.value;
        controls[input.name] = field;
        return field.content && make("fieldset", {}, make("legend", {}, input.name, " ",
          make("span", { class: "unit", textContent: `${input.type} [${input.declared.join(", ")}]` })), ...field.content);
      });
      box.replaceChildren(...fields.filter(Boolean));
      if (follow.length) box.append(make("p", { class: "quiet", textContent: `Made from the text: ${follow.join(", ")}.` }));
    },
    takes: (file) => Object.values(controls).some(({ kind }) => kind && file.type.startsWith(`${kind}/`)),
    // A dropped picture or sound goes to the first input that takes one.
    async take(file) {
      const taker = Object.values(controls).find(({ kind }) => kind && file.type.startsWith(`${kind}/`));
      const what = file.type.startsWith("image/") ? "picture" : "sound";
      if (!taker) throw new Error(`${file.name}: no input of this model takes a ${what}`);
      await taker.take(file);
    },
    collect() {
      const asked = {};
      const files = {};
      for (const [name, field] of Object.entries(controls)) {
        asked[name] = field.value();
        const data = ["picture", "sound"].includes(asked[name].role) && field.data();
        if (data) files[name] = data;
      }
      return { asked, files };
    },
  };
}
