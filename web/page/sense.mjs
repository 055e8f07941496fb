// See and hear: what a picture shows, the text in it, and the speech in a sound, one click away.
import { pixels } from "./inputs.mjs";
import { $, classes, make, megabytes, milliseconds, notices } from "./show.mjs";
import { RATE, RECORDED, record, samplesOf } from "./sound.mjs";

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
  let samples;

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
    wait();
    update();
  }

  const address = (name) => new URL(models[name], location.href).href;

  function name(bitmap) {
    begin("Looking at the picture");
    $("named").hidden = false;
    $("names").replaceChildren();
    drawPicture($("named"), bitmap, 1);
    const middle = pixels(make("canvas"), bitmap, NAMED_SIDE, NAMED_SIDE, "crop");
    ask({ ask: "name", namer: address("namer"), names: address("names") }, { pixels: middle });
  }

  function see() {
    const { width, height } = $("seen");
    begin("Reading the picture");
    $("seen").hidden = false;
    $("lines").replaceChildren();
    const all = new Uint8Array(context().getImageData(0, 0, width, height).data.buffer);
    ask({ ask: "see", width, height, finder: address("finder"), reader: address("reader") }, { pixels: all });
  }

  async function hear(data, name) {
    try {
      samples = await samplesOf(data, name);
    } catch (error) {
      end();
      problem(error.message);
      return;
    }
    begin("Listening");
    ask({ ask: "hear", listener: address("listener") }, { samples: new Uint8Array(samples.buffer) });
  }

  // Gives the picture of a file to `use`.
  async function takePicture(file, use) {
    let bitmap;
    try {
      bitmap = await createImageBitmap(file);
    } catch {
      problem(`${file.name}: not a picture that this browser can read`);
      return;
    }
    use(bitmap);
  }

  const nameFile = (file) => takePicture(file, name);
  const readFile = (file) => takePicture(file, (bitmap) => {
    drawPicture($("seen"), bitmap, MULTIPLE);
    see();
  });

  const takeSound = async (file) => hear(await file.arrayBuffer(), file.name);

  const on = {
    progress: ({ text, done, total }) => wait(`${text}: ${megabytes(done)} of ${megabytes(total)}`, done, total),
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
      drawSound(samples, parts);
      const span = ([first, last]) => `${first.toFixed(1)} – ${last.toFixed(1)} s`;
      $("parts").replaceChildren(...parts.map((part) => make("li", { textContent: span(part) })));
      $("sense-state").textContent = `${parts.length || "no"} part${parts.length === 1 ? "" : "s"} with speech, found in ${milliseconds(seconds)} ms`;
    },
    error: ({ text }) => {
      end();
      problem(text);
    },
  };

  $("name-sample").addEventListener("click", async () => {
    const answer = await fetch("coffee.jpg");
    await takePicture(await answer.blob(), name);
  });
  $("see-sample").addEventListener("click", () => {
    drawSign();
    see();
  });
  $("hear-sample").addEventListener("click", async () => {
    begin("Listening");
    const answer = await fetch("speech.wav");
    await hear(await answer.arrayBuffer(), "speech.wav");
  });
  $("record").addEventListener("click", async () => {
    try {
      begin(`Recording for ${RECORDED} seconds`);
      await hear(await record(), "the recording");
    } catch (error) {
      end();
      problem(`The microphone cannot be used: ${error.message}`);
    }
  });
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
    lost: end,
  };
}
