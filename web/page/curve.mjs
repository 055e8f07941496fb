// A curve that is drawn while a text is generated: a value over time, from 0 to its largest.
import { $ } from "./show.mjs";

const POINTS = 240;
const PERIOD = 50;  // milliseconds between two points

export function curve(id, unit) {
  const line = $(id).querySelector("polyline");
  const label = $(id).querySelector("figcaption b");
  let values = [];
  let last = 0;

  function end(value) {
    values.push(value);
    if (values.length > POINTS) values = values.filter((_, i) => i % 2);
    const most = Math.max(...values) * 1.1 || 1;
    line.setAttribute("points", values.map((v, i) => `${(100 * i) / Math.max(values.length - 1, 1)},${(30 * (1 - v / most)).toFixed(2)}`).join(" "));
    label.textContent = unit(value);
  }

  return {
    begin() { [values, last] = [[], 0]; },
    add(value) {
      const now = performance.now();
      if (now - last < PERIOD) return;
      last = now;
      end(value);
    },
    end,  // the last value, which is drawn in any case
  };
}
