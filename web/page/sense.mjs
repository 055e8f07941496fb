// See and hear: what a picture shows, the text in it, and the speech in a sound, one click away.
import { pixels } from "./inputs.mjs";
import { $, classes, fileOf, make, milliseconds, notices, share } from "./show.mjs";
import { LONGEST, RATE, RECORDED, record, samplesOf, spanOf } from "./sound.mjs";

const NAMED_SIDE = 224;  // pixels of the square that is named: the middle of a picture
const SIDE = 640;  // pixels of a picture's longer side
const MULTIPLE = 32;
const SIGN = [["Golden Heron Inn", 58, 120], ["Breakfast from 6 to 10", 34, 215], ["Rooms: 90 coins a night", 34, 280], ["Please ring twice!", 28, 400]];

const context = () => $("seen").getContext("2d", { willReadFrequently: true });

function drawSign() {
  Object.assign($("seen"), { width: SIDE, height: 480 });
  const paper = context();
  paper.fillStyle = "#f4e9d0";
  paper.fillRect(0, 0, SIDE, 480);
  paper.fillStyle = "#3a2a1a";
  for (const [text, size, y] of SIGN) {
    paper.font = `600 ${size}px sans-serif`;
    paper.fillText(text, 56, y);
  }
}

// Draws a picture on white, with sides that are multiples of `multiple`.
function drawPicture(canvas, bitmap, multiple) {
  const factor = Math.min(SIDE / Math.max(bitmap.width, bitmap.height), 1);
  const [width, height] = [bitmap.width, bitmap.height].map((side) => Math.max(Math.round(side * factor), 1));
  const whole = (side) => Math.ceil(side / multiple) * multiple;
  Object.assign(canvas, { width: whole(width), height: whole(height) });
  const paper = canvas.getContext("2d", { willReadFrequently: true });
  paper.fillStyle = "#fff";
  paper.fillRect(0, 0, canvas.width, canvas.height);
  paper.drawImage(bitmap, 0, 0, width, height);
}

function drawSound(samples, parts) {
  const canvas = Object.assign($("heard"), { width: 800, height: 120 });
  const paper = canvas.getContext("2d");
  const style = getComputedStyle(canvas);
  const seconds = samples.length / RATE;
  paper.fillStyle = style.borderColor;
  for (const [begin, end] of parts) paper.fillRect((800 * begin) / seconds, 0, (800 * (end - begin)) / seconds, 120);
  paper.fillStyle = style.color;
  const most = samples.reduce((largest, value) => Math.max(largest, Math.abs(value)), 1e-6);
  for (let x = 0; x < 800; x += 2) {
    const part = samples.subarray(Math.floor((x * samples.length) / 800), Math.floor(((x + 2) * samples.length) / 800));
    const loud = part.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0) / most;
    paper.fillRect(x, 60 - 56 * loud, 1.2, 2 + 112 * loud);
  }
}

export function sense(ask, models) {
  const { wait, problem } = notices("sense-");
  const present = Boolean(models.finder);
  let busy = false;
  let sound;

  function update() {
    for (const button of document.querySelectorAll(".sense button, .sense input")) button.disabled = busy || !present;
    $("senses-none").hidden = present;
  }

  function begin(text) {
    problem("");
    $("sense-state").textContent = "";
    busy = true;
    wait(text);
    update();
  }

  function end() {
    busy = false;
    $("sense-cancel").hidden = true;
    wait();
    update();
  }

  const address = (name) => new URL(models[name], location.href).href;

  // Does something with what `source` gives; until then the page shows that it waits for it.
  async function using(text, source, use) {
    begin(text);
    try {
      await use(await source());
    } catch (error) {
      end();
      problem(error.message);
    }
  }

  // Draws a file's picture, large as it may be, and lets it go.
  async function drawn(file, draw) {
    let bitmap;
    try {
      bitmap = await createImageBitmap(file);
    } catch {
      throw new Error(`${file.name}: not a picture that this browser can read`);
    }
    try {
      return draw(bitmap);
    } finally {
      bitmap.close();
    }
  }

  async function name(file) {
    const middle = await drawn(file, (bitmap) => {
      drawPicture($("named"), bitmap, 1);
      return pixels(make("canvas"), bitmap, NAMED_SIDE, NAMED_SIDE, "crop");
    });
    $("named").hidden = false;
    $("names").replaceChildren();
    ask({ ask: "name", namer: address("namer"), names: address("names") }, { pixels: middle });
  }

  function see() {
    const { width, height } = $("seen");
    $("seen").hidden = false;
    $("lines").replaceChildren();
    const all = new Uint8Array(context().getImageData(0, 0, width, height).data.buffer);
    ask({ ask: "see", width, height, finder: address("finder"), reader: address("reader") }, { pixels: all });
  }

  async function hear(file) {
    sound = await samplesOf(file);
    ask({ ask: "hear", listener: address("listener") }, { samples: new Uint8Array(sound.samples.buffer) });
  }

  const nameFile = (file) => using("Looking at the picture", () => file, name);
  const readFile = (file) => using("Reading the picture", () => file, async () => {
    await drawn(file, (bitmap) => drawPicture($("seen"), bitmap, MULTIPLE));
    see();
  });
  const takeSound = (file) => using("Listening", () => file, hear);
  const recorded = () => record().catch(({ message }) => { throw new Error(`The microphone cannot be used: ${message}`); });

  const on = {
    progress: ({ text, done, total }) => {
      wait(share(text, done, total), done, total);
      $("sense-cancel").hidden = false;
    },
    named: ({ best, seconds }) => {
      end();
      $("names").replaceChildren(classes(best, "What the picture shows"));
      $("sense-state").textContent = `${best[0].name}, found in ${milliseconds(seconds)} ms`;
    },
    seen: ({ lines, seconds }) => {
      end();
      const paper = context();
      paper.lineWidth = 3;
      paper.strokeStyle = "#0c6a53";
      for (const { box: [left, top, right, bottom] } of lines) paper.strokeRect(left, top, right - left, bottom - top);
      $("lines").replaceChildren(...lines.map(({ text }) => make("li", { dir: "auto", textContent: text })));
      $("sense-state").textContent = `${lines.length} line${lines.length === 1 ? "" : "s"} of text in ${milliseconds(seconds)} ms`;
    },
    heard: ({ parts, seconds }) => {
      end();
      $("heard").hidden = false;
      drawSound(sound.samples, parts);
      const span = ([first, last]) => `${first.toFixed(1)} – ${last.toFixed(1)} s`;
      $("parts").replaceChildren(...parts.map((part) => make("li", { textContent: span(part) })));
      $("sense-state").textContent = `${parts.length || "no"} part${parts.length === 1 ? "" : "s"} with speech${sound.seconds > LONGEST ? ` in ${spanOf(sound)}` : ""}, found in ${milliseconds(seconds)} ms`;
    },
    stopped: end,
    error: ({ text }) => {
      end();
      problem(text);
    },
  };

  $("sense-cancel").addEventListener("click", () => ask({ ask: "stop" }));
  $("name-sample").addEventListener("click", () => using("Looking at the picture", () => fileOf("coffee.jpg"), name));
  $("see-sample").addEventListener("click", () => using("Reading the picture", drawSign, see));
  $("hear-sample").addEventListener("click", () => using("Listening", () => fileOf("speech.wav"), hear));
  $("record").addEventListener("click", () => using(`Recording for ${RECORDED} seconds`, recorded, hear));
  for (const [id, take] of [["name-file", nameFile], ["see-file", readFile], ["hear-file", takeSound]]) {
    $(id).addEventListener("change", () => {
      const [file] = $(id).files;
      if (file) take(file);
      $(id).value = "";
    });
  }
  update();
  return {
    on,
    // Takes a dropped picture or sound unless the model that is open `takes` it. Text is read in
    // pictures that are dropped there.
    take(files, takes, place) {
      if (busy || !present || files.length !== 1) return false;
      const [file] = files;
      if (file.type.startsWith("image/") && place.closest?.("#reading")) readFile(file);
      else if (takes(file)) return false;
      else if (file.type.startsWith("image/")) nameFile(file);
      else if (file.type.startsWith("audio/")) takeSound(file);
      else return false;
      return true;
    },
    stop: () => { if (busy) ask({ ask: "stop" }); },
    lost: end,
  };
}
