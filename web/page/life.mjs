// The life of the page's Python: what is lost when it ends, and how it starts again with its model.
import { $ } from "./show.mjs";

// `state` is the page's, `wait` shows what it waits for, `start` starts Python, `abandon` gives up
// what it was doing, `restarted` and `update` are called after it was started again.
export function life({ state, wait, start, abandon, restarted, update }) {
  // Shows a failure of the whole page, in all tabs; `offer` a button that starts Python again.
  function failure(text, offer = false) {
    $("failure-text").textContent = text;
    $("failure").hidden = !text;
    $("again").hidden = !offer;
  }

  // Python's work is lost; its model is to be opened again.
  function lose() {
    abandon();
    Object.assign(state, { again: state.given ?? state.again, given: undefined, asked: undefined });
    $("model-name").dataset.loaded = "no";
  }

  function restart() {
    Object.assign(state, { begun: false, loading: true, restarted: true });
    failure("");
    wait("Starting Python");
    start();
    restarted();
    update();
  }

  // Python has ended. If it had started completely, it is started again.
  function lost(text) {
    lose();
    if (state.begun) {
      restart();
      failure(`${text} It has been restarted.`);
    } else {
      state.loading = false;
      wait();
      failure(`${text.replace(/\.$/, "")}. Start again, or reload the page.`, true);
    }
    update();
  }

  function silent(yes) {
    failure(yes ? "Python does not respond. It may be busy, or the browser may have ended it." : "", yes);
  }

  $("again").addEventListener("click", () => {
    lose();
    restart();
  });
  document.addEventListener("submit", () => failure(""));
  return { failure, lost, silent };
}
