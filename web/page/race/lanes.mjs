// The lanes of a heat: one engine each, with its bar, its figure and what it says.
import { make } from "../show.mjs";
import { figure, summary } from "./contest.mjs";

const SHOWN = 50;  // milliseconds between two changes of a bar
const TICKER = 160;  // characters

// `unit` follows the figures. A lane is {name, title, values, show, settle, ...}; bars have a common scale.
export function laneList(list, unit) {
  const lanes = [];
  const best = () => Math.max(...lanes.map((lane) => Math.max(lane.shown, lane.summary?.high ?? 0)), 1e-9);
  const draw = () => lanes.forEach((lane) => lane.draw(best()));

  function add({ name, title, version }) {
    const parts = {
      speed: make("span", { class: "speed" }), bar: make("span", { class: "bar" }),
      spread: make("span", { class: "spread", hidden: true }),
      note: make("p", { class: "note" }), ticker: make("p", { class: "ticker", "aria-hidden": "true" }),
    };
    const item = make("li", { class: name === "halfbyte" ? "lane own" : "lane", "data-engine": name },
      make("span", { class: "who" }, `${title} `, make("small", {}, version)), parts.speed,
      make("span", { class: "track", "aria-hidden": "true" }, parts.bar, parts.spread), parts.ticker, parts.note);
    list.append(item);
    let last = 0;
    const lane = {
      name, title: name === "halfbyte" ? title : `${title} ${version}`, version, values: [], shown: 0, summary: undefined, problem: "", facts: {},
      note: (text) => { parts.note.textContent = text; },
      active: (yes) => item.classList.toggle("active", yes),
      write(text = "") {
        if (text) parts.ticker.textContent = text.slice(-TICKER).replaceAll("\n", " ");
      },
      // while it runs: a speed so far, and a text
      show(speed, text) {
        const now = performance.now();
        if (now - last < SHOWN) return;
        last = now;
        lane.write(text);
        if (!lane.summary && speed > 0 && Number.isFinite(speed)) {
          lane.shown = speed;
          draw();
        }
      },
      // after a turn that counts
      count(value) {
        lane.values.push(value);
        lane.summary = summary(lane.values);
        lane.shown = lane.summary.median;
        draw();
      },
      fail(error) {
        lane.problem = error;
        lane.active(false);
        if (!lane.summary) lane.shown = 0;
        item.classList.add("out");
        parts.ticker.textContent = "";
        lane.note(lane.summary ? `dropped out: ${error}` : error);
        draw();
      },
      draw(scale) {
        parts.bar.style.width = `${100 * lane.shown / scale}%`;
        if (lane.shown) parts.speed.replaceChildren(make("b", {}, figure(lane.shown)), " ", make("small", {}, unit));
        else parts.speed.replaceChildren(lane.problem ? "not here" : "–");
        const range = lane.summary;
        parts.spread.hidden = !range || lane.values.length < 2;
        if (!range) return;
        parts.spread.style.insetInlineStart = `${100 * range.low / scale}%`;
        parts.spread.style.width = `${100 * (range.high - range.low) / scale}%`;
      },
    };
    lanes.push(lane);
    draw();
    return lane;
  }

  return { add, lanes };
}
