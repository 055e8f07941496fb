// The worker in which Python runs: started, watched, and started again when it has ended.
import { locks } from "./storage.mjs";

const BEAT = 10_000;  // milliseconds between two questions whether it is there
const MISSED = 6;  // unanswered ones until that is said: it may only be busy
const ENDED = "The browser has ended the page's Python, most often because memory ran out.";

// `receive` gets the worker's messages; `lost` why it has ended; `silent` whether it does not answer.
export function python({ receive, lost, silent }) {
  let worker;
  let missed = 0;

  function start() {
    worker?.terminate();
    const made = worker = new Worker(`worker.mjs${location.search}`, { type: "module" });
    let heard = false;
    const end = (text) => {
      if (worker !== made) return;
      worker = undefined;
      made.terminate();
      lost(text);
    };
    const on = {
      here: () => {},
      held: ({ name }) => locks.request(name, () => end(ENDED)).catch(() => {}),
      lost: ({ text }) => end(text),
    };
    missed = 0;
    made.onmessage = ({ data }) => {
      if (worker !== made) return;
      heard = true;
      if (missed >= MISSED) silent(false);
      missed = 0;
      (on[data.kind] ?? receive)(data);
    };
    made.onerror = ({ message }) => {
      const text = `The page's worker failed: ${message ?? "worker.mjs could not be loaded"}`;
      if (heard) receive({ kind: "error", text });
      else end(text);
    };
  }

  setInterval(() => {
    worker?.postMessage({ kind: "there" });
    if (worker && (missed += 1) === MISSED) silent(true);
  }, BEAT);

  return { start, send: (message) => worker?.postMessage(message) };
}
