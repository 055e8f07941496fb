// The page as on another device, which the page's Python simulates: see feel.py. Its heat is drawn as
// messages come, and kept from the moment that it was chosen.
import { $, make, megabytes } from "./show.mjs";
import { watchMachine } from "./machine.mjs";

const MINUTES = 10;  // of a skip
const POINTS = 300;
const COLDEST = 15;  // degrees Celsius at the bottom of the chart
const HEADROOM = 8;  // kelvins above the warmest
const KEPT = 0.97;  // of a cold device's speed, below which it is called slowed down

const figure = (value) => (value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(1));
const degrees = (value) => `${value.toFixed(value >= 100 ? 0 : 1)} °C`;
const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
const bare = (title) => title.split(/ \(|,/)[0];

// `send` sends a message to Python, which answers with `devices` and `device`.
export function deviceView({ send }) {
  const usual = $("headline-note").textContent;
  let samples = [];  // {seconds, case, processor}
  let chosen = "";

  $("feel").replaceWith($("device-choice").content.cloneNode(true));
  $("stage").append($("device-heat").content.cloneNode(true));
  $("device").addEventListener("change", () => choose($("device").value));
  $("later").addEventListener("click", () => send({ kind: "skip", minutes: MINUTES }));
  $("leave").addEventListener("click", () => {
    $("device").value = "";
    choose("");
    $("settings").open = true;
    $("device").focus();
  });
  watchMachine((text) => { $("real").textContent = text; });
  send({ kind: "devices" });

  function choose(name) {
    chosen = name;
    samples = [];
    $("heat").hidden = !name;
    $("device-facts").textContent = "";
    $("headline-note").textContent = usual;
    if (name) {
      $("heat-state").textContent = "Starting it…";
      $("heat").scrollIntoView({ block: "center" });
    }
    send({ kind: "feel", device: name });
  }

  return {
    // Another model: the device is cold again. Or Python was started again.
    loaded() {
      if ($("device").disabled) send({ kind: "devices" });
      else if (chosen) choose(chosen);
    },
    devices({ devices }) {
      $("device").replaceChildren(
        make("option", { value: "", textContent: "this device" }),
        ...devices.map(({ name, title }) => make("option", { value: name, textContent: title })));
      $("device").disabled = false;
      $("device").focus();
    },
    show(message) {
      if (message.name !== chosen) return;
      const name = bare(message.title);
      $("heat-title").textContent = name;
      $("headline-note").textContent = message.refusal ? usual : message.slower ? `slower than the ${name}` : `as on the ${name}`;
      $("heat-chart").hidden = $("heat-key").hidden = $("later").hidden = Boolean(message.refusal);
      $("heat-state").classList.toggle("problem", Boolean(message.refusal) || message.on === false);
      $("heat-state").textContent = message.refusal || verdict(message, name);
      $("device-facts").textContent = facts(message);
      if (message.refusal) return;
      draw(message);
      $("later").disabled = message.skipping || !message.on;
    },
  };

  function draw(message) {
    samples.push({ seconds: message.seconds, case: message.case, processor: message.processor });
    if (samples.length > POINTS) samples = samples.filter((_, i) => i % 2 || i === samples.length - 1);
    const warmest = Math.max(message.limit, ...samples.map(({ processor }) => processor)) + HEADROOM;
    const end = Math.max(message.seconds, 10);
    const up = (celsius) => (100 * (warmest - celsius)) / (warmest - COLDEST);
    const points = (part) => samples.map((one) => `${((100 * one.seconds) / end).toFixed(2)},${up(one[part]).toFixed(2)}`).join(" ");
    $("processor-line").setAttribute("points", points("processor"));
    $("case-line").setAttribute("points", message.case === null ? "" : points("case"));
    for (const side of ["y1", "y2"]) $("limit-line").setAttribute(side, up(message.limit).toFixed(2));
    $("limit").style.setProperty("--at", `${up(message.limit)}%`);
    $("limit").textContent = `kept below ${message.limit.toFixed(0)} °C`;
    $("processor-c").textContent = degrees(message.processor);
    $("case-key").hidden = message.case === null;
    if (message.case !== null) $("case-c").textContent = degrees(message.case);
    $("heat-more").textContent = [
      `${(message.megahertz / 1000).toFixed(2)} GHz`,
      message.charge === null ? "" : `battery ${Math.ceil(100 * message.charge)} %`, clock(message.seconds),
    ].filter(Boolean).join(" · ");
    const warm = message.case === null ? "" : `case ${degrees(message.case)}, `;
    $("heat-chart").setAttribute("aria-label", `Temperature since ${clock(message.seconds)} minutes: ${warm}processor ${degrees(message.processor)}.`);
  }
}

// How fast the device is now, and whether this tab can keep up.
function verdict({ on, speed, kept, slower, skipping }, name) {
  if (!on) return `The ${name} has switched itself off: it is too hot, or its battery is empty.`;
  if (skipping) return "Ten minutes of writing without a pause…";
  const now = `${figure(speed)} tokens/s`;
  const heat = kept < KEPT ? `Slowed by heat to ${now}, ${Math.round(100 * kept)} % of its cool speed.` : `Cool: ${now}.`;
  return slower === null ? heat : `${heat} This tab is slower than the ${name}: ${figure(slower)} tokens/s. The heat is that of the device at full speed.`;
}

// What the simulation knows, for those who ask.
function facts({ threads, air, numbers, cold, memory }) {
  const speed = cold ? `Cool, such devices write ${figure(cold.low)} to ${figure(cold.high)} tokens/s in their browser, on ${threads} thread${threads > 1 ? "s" : ""}. ` : "";
  const room = memory ? `The model takes ${megabytes(memory.needs)} of the ${megabytes(memory.limit)} that a tab has there. ` : "";
  return `${speed}${room}A simulation in air of ${air} °C, from ${numbers.sourced} numbers with a source and ${numbers.assumed} assumed ones.`;
}
