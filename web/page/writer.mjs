// Texts that are being generated, one at a time: the story that the page begins by itself, and what
// the user asks for, which comes instead. A model is loaded once a text has been stopped.
import { curve } from "./curve.mjs";
import { $, megabytes } from "./show.mjs";

const tokens = (count) => `${count} token${count === 1 ? "" : "s"}`;
const speed = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));

// `send` sends a message to Python, `problem` shows one, `update` is called when something changed.
export function writer({ send, problem, update }) {
  let running = false;
  let unasked = false;  // whether the text is the page's own first story
  let touched = false;  // whether the page has told its story, or the user has begun something
  let next;  // what is to begin once the present text has ended, which is being stopped
  let shown;  // the view whose text is being generated
  const curves = { speed: curve("speed-curve", (value) => `${speed(value)} tokens/s`), memory: curve("memory-curve", megabytes) };

  // Begins what was asked for instead of the text that has ended.
  function proceed() {
    const act = next;
    next = undefined;
    act?.();
    return Boolean(act);
  }

  // Does what needs the model for itself, after a text has been stopped.
  function instead(act) {
    touched = true;
    if (!running) return act();
    next = act;
    return send({ kind: "stop" });
  }

  // Asks Python to generate a text, which `view` shows; returns whether it will.
  function write(view, message) {
    if (unasked) {
      view.speed.textContent = "";  // which was that of the page's story
      instead(() => write(view, message));
      return true;
    }
    if (running) {
      problem("A text is already being generated. Stop it first (or press Esc).");
      return false;
    }
    problem("");
    touched = running = true;
    shown = view;
    for (const one of Object.values(curves)) one.begin();
    view.speed.textContent = "";
    update();
    const seed = $("seed").value;
    send({
      ...message,
      length: Number($("length").value) || 200,
      temperature: Number($("temperature").value),
      seed: seed === "" ? null : Number(seed),
      probabilities: $("probabilities").checked,
    });
    return true;
  }

  // Whether the text is the page's own story, and is not wanted any more.
  const dropped = () => unasked && Boolean(next);

  function end(result) {
    problem("");
    $("decode-speed").textContent = result.decode_speed ? speed(result.decode_speed) : "–";
    if (result.decode_speed) curves.speed.end(result.decode_speed);
    $("prompt-speed").textContent = speed(result.prompt_speed);
    $("first-token").textContent = (1000 * result.first_token).toFixed(0);
    shown.speed.textContent = `${tokens(result.tokens)}${result.stopped ? ", stopped" : ""}`;
    $("status").textContent = `${shown.speed.textContent}: ${$("decode-speed").textContent} tokens per second`;
    shown.done(result);
    update();
  }

  return {
    write,
    instead,
    touch: () => { touched = true; },
    touched: () => touched,
    running: () => running,
    busy: () => running && !unasked,  // with what the user has asked for
    stop: () => { if (running) send({ kind: "stop" }); },
    // Tells the page's own story.
    tell(view, message) {
      unasked = write(view, message);
    },
    // Python's work is lost.
    abandon() {
      if (running) shown.done();
      running = unasked = false;
      next = undefined;
    },
    // Python has failed at what it was asked for; returns whether something else is begun instead.
    failed() {
      if (running && !dropped()) shown.done();
      running = unasked = false;
      return proceed();
    },
    piece({ text, tokens: count, decode_speed: now, heap, ...more }) {
      if (dropped()) return;
      shown.piece(text, more);
      if (!now) return;
      $("decode-speed").textContent = speed(now);
      curves.speed.add(now);
      curves.memory.add(heap);
      shown.speed.textContent = `${tokens(count)}, ${speed(now)} tokens/s`;
    },
    done(result) {
      const ended = !dropped();
      running = unasked = false;
      if (ended) end(result);
      proceed();
    },
  };
}
