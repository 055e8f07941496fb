// Five minutes of heat: halfbyte writes without a pause, beside the simulation of a device.
import { $, make } from "../show.mjs";
import { drawChart, pageColours } from "./chart.mjs";
import { figure, mean, nearest } from "./contest.mjs";

export const MINUTES = 5;
const EACH = 1000;  // milliseconds of a sample, at least one text

// Returns a function that gives what was measured and predicted. `speed` is the race's, in tokens/s.
export async function hot({ engine, speed, task, say, progress, stopped, model }) {
  const samples = [];
  let predicted, device;
  say("Predicting the heat of devices like this one");
  const devices = await engine.devices();
  device = nearest(devices, speed, model).name;
  const predict = async (name) => {
    predicted = await engine.predict({ name, minutes: MINUTES });
    draw();
  };
  await predict(device);
  choose();
  const end = 60 * MINUTES;
  const watch = matchMedia("(prefers-color-scheme: dark)");
  watch.addEventListener("change", draw);
  addEventListener("resize", draw);
  say("Five minutes of heat");
  const start = performance.now();
  const seconds = () => (performance.now() - start) / 1000;
  while (seconds() < end && !stopped()) {
    const sample = await measure();
    samples.push({ at: Math.min(seconds(), end), speed: sample });
    progress(Math.min(seconds(), end), end);
    draw();
  }
  $("device").disabled = true;  // Python ends with the race
  tell();
  return () => ({ device, samples, predicted });

  // Tokens/s of texts one after another for a second.
  async function measure() {
    let tokens = 0, writing = 0;
    const begin = performance.now();
    do {
      const result = await engine.run(task);
      [tokens, writing] = [tokens + result.tokens, writing + result.writing];
    } while (performance.now() - begin < EACH && !stopped());
    return tokens / writing;
  }

  function choose() {
    const sorted = [...devices].sort((a, b) => a.title.localeCompare(b.title));
    $("device").replaceChildren(...sorted.map(({ name, title }) => make("option", { value: name, selected: name === device }, title)));
    $("device").addEventListener("change", () => predict(device = $("device").value));
    $("hot-choice").hidden = $("hot-key").hidden = false;
    const far = Math.abs(Math.log(devices.find(({ name }) => name === device).speed / speed));
    if (far > Math.log(2)) $("hot-note").textContent = "No profile is near this device: this one is the nearest.";
  }

  function draw() {
    $("chart").hidden = false;
    const canvas = $("chart"), scale = Math.min(3, devicePixelRatio || 1);
    const { width, height } = canvas.getBoundingClientRect();
    Object.assign(canvas, { width: width * scale, height: height * scale });
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    const size = parseFloat(getComputedStyle(document.documentElement).fontSize) * 0.8;
    drawChart(context, { x: 0, y: 0, width, height, size }, { samples, predicted }, pageColours());
  }

  // The first minute beside the last, measured and predicted.
  function tell() {
    const kept = (of) => [mean(of, 0, 60), mean(of, end - 60, end)];
    const [first, last] = kept(samples);
    const [before, after] = kept(predicted.seconds.map((at, i) => ({ at, speed: predicted.median[i] })));
    const percent = (a, b) => `${Math.round(100 * b / a)} %`;
    const words = last === undefined
      ? (first === undefined ? "" : `${figure(first)} tokens/s in the first minute; stopped before the last.`)
      : `The fifth minute's speed is ${percent(first, last)} of the first's; predicted for ${predicted.title}: ${percent(before, after)}.`;
    $("hot-verdict").textContent = words;
    $("chart").setAttribute("aria-label", `Tokens per second over five minutes. ${words}`);
  }
}
