// The worker in which Python runs: starts it, watches it, and reports when it has ended.
import { locks } from "./storage.mjs";

const BEAT = 10_000;  // milliseconds between two checks whether the worker responds
const MISSED = 6;  // unanswered checks until that is reported: the worker may only be busy
const ENDED = "The browser has ended the page's Python, most likely because memory ran out.";

// `receive` is called with the worker's messages, `lost` with the reason why it has ended, `silent`
// with whether it does not respond.
export function python({ receive, lost, silent }) {
  let worker;
  let missed = 0;

  function start() {
    worker?.terminate();
    const own = worker = new Worker(`worker.mjs${location.search}`, { type: "module" });
    let heard = false;
    const end = (text) => {
      if (worker !== own) return;
      worker = undefined;
      own.terminate();
      lost(text);
    };
    const on = {
      here: () => {},
      held: ({ name }) => locks.request(name, () => end(ENDED)).catch(() => {}),
      lost: ({ text }) => end(text),
    };
    missed = 0;
    own.onmessage = ({ data }) => {
      if (worker !== own) return;
      heard = true;
      if (missed >= MISSED) silent(false);
      missed = 0;
      (on[data.kind] ?? receive)(data);
    };
    own.onerror = ({ message }) => {
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
