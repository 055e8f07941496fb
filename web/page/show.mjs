// Elements and texts that all tabs share: bytes, times, memory, progress and problems.
export const $ = (id) => document.getElementById(id);

const COLOURS = ["#1f6f5c", "#5cc4a6", "#e0a030", "#b5651d", "#5b7db1", "#9a9a9a"];
const BACKENDS = {
  "native-relaxed": "WebAssembly, relaxed SIMD",
  "native-relaxed64": "WebAssembly, relaxed SIMD, 64-bit memory",
  "native-simd128": "WebAssembly SIMD (128 bits)",
  numpy: "NumPy, without SIMD",
};

export const megabytes = (bytes) => {
  const value = bytes / 1e6;
  return `${value >= 100 ? value.toFixed(0) : value.toFixed(value >= 1 ? 1 : 2)} MB`;
};

// How much of a file has arrived, whose `total` a server may not say.
export const share = (text, done, total) => (total
  ? `${text}: ${megabytes(done)} of ${megabytes(total)}, ${Math.floor((100 * done) / total)}\u00a0%`
  : `${text}: ${megabytes(done)}`);

export const milliseconds = (seconds) => {
  const value = 1000 * seconds;
  return value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2);
};

// An element with properties and children; `class` and names with a dash are attributes.
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class" || name.includes("-")) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

// Replaces a list's items, in which the focus stays at its place; in an empty one it goes to what folds it.
export function refill(list, items) {
  const place = [...list.querySelectorAll("button")].indexOf(document.activeElement);
  list.replaceChildren(...items);
  if (place < 0) return;
  const buttons = [...list.querySelectorAll("button")];
  (buttons[place] ?? buttons.at(-1) ?? list.closest("details")?.querySelector("summary"))?.focus();
}

// `alone` is why there is only one thread.
export const runsOn = (backend, threads, alone) =>
  `${BACKENDS[backend] ?? backend}, ${threads} thread${threads > 1 ? "s" : ""}${alone ? `: ${alone}` : ""}`;

export function showMemory(bar, table, memory) {
  const rows = Object.entries(memory).sort(([, a], [, b]) => b - a);
  const total = rows.reduce((sum, [, bytes]) => sum + bytes, 0);
  bar.replaceChildren(...rows.map(([, bytes], i) => {
    const part = make("span");
    part.style.flexGrow = bytes;
    part.style.background = COLOURS[i % COLOURS.length];
    return part;
  }));
  table.tBodies[0].replaceChildren();
  [...rows, ["total", total]].forEach(([name, bytes], i) => {
    const row = table.tBodies[0].insertRow();
    const mark = make("i");
    mark.style.background = i < rows.length ? COLOURS[i % COLOURS.length] : "transparent";
    row.insertCell().append(mark, name);
    row.insertCell().textContent = megabytes(bytes);
  });
}

// A table of classes, each with its share as a bar and in percent, and its `value` if it has one.
export function classes(best, title) {
  const table = make("table", { class: "best" }, make("caption", { textContent: title }), make("tbody"));
  for (const { name, share: part, value } of best) {
    const row = table.tBodies[0].insertRow();
    const bar = make("span", { class: "share", "aria-hidden": "true" });
    bar.style.setProperty("--share", `${100 * part}%`);
    row.append(make("th", { scope: "row" }, name, bar));
    row.insertCell().textContent = `${(100 * part).toFixed(1)} %`;
    if (value !== undefined) row.insertCell().textContent = value;
  }
  return table;
}

// Progress and problems, in elements named `<prefix>wait`, `-wait-text`, `-progress` and `-problem`.
export function notices(prefix) {
  const [box, label, bar, alert] = ["wait", "wait-text", "progress", "problem"].map((name) => $(prefix + name));
  return {
    wait(text, done, total) {
      box.hidden = !text;
      label.textContent = text ?? "";
      if (total) {
        bar.max = total;
        bar.value = done;
      } else {
        bar.removeAttribute("value");
      }
    },
    problem(text) {
      alert.textContent = text;
      alert.hidden = !text;
      if (text) alert.scrollIntoView({ block: "nearest" });
    },
  };
}

// A file of the page.
export async function fileOf(name) {
  const answer = await fetch(name).catch(() => { throw new Error(`${name}: its server does not answer, or this device is offline`); });
  if (!answer.ok) throw new Error(`${name}: the server answered ${answer.status}`);
  const content = await answer.blob();
  return new File([content], name, { type: content.type });
}
