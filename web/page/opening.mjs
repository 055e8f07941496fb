// Opens what the user gives, or Back and Forward lead to, in the tab that it is for: a language model
// where the page writes, an encoder in the search, a graph in the tab for those.
import { $, notices } from "./show.mjs";
import { absolute, addressOf, isEncoder, isGraph, link, wanted } from "./models.mjs";
import { persist } from "./storage.mjs";
import { openTab, tabs } from "./tabs.mjs";

// `state` is the page's; `settings` a promise of site.json; `load` and `request` load a language model,
// the latter as the user asked for it; `busy` says whether a text is being generated.
export function opening({ state, settings, send, problem, load, request, busy }) {
  let graphs;  // a promise of the views of ONNX models
  let moved = false;  // by Back or Forward while a model was being loaded
  const open = tabs(opened);

  function views() {
    graphs ??= Promise.all([import("./graphs.mjs"), settings])
      .then(([module, known]) => module.graphs(send, known, (text, tab) => visit(text, true, tab), toLanguage));
    return graphs;
  }

  async function opened(name) {
    if (name === "language") return;
    try {
      (await views()).open(name);
    } catch (error) {
      graphs = undefined;
      notices(`${name}-`).problem(`This tab could not be loaded. Reload the page to try again. (${error.message})`);
    }
  }

  // Loads a model by its address, which the page's address then has too: one in ONNX, or from the
  // tab for those, in that tab, and an encoder in that for search.
  async function visit(text, touches = true, tab = "") {
    try {
      const url = await addressOf(text, tab === "onnx" ? "onnx" : "gguf");
      persist();
      if (tab === "onnx" || isGraph(url)) {
        if (isGraph(url)) link(url, "#onnx", !touches);
        open("onnx");
        (await graphs).fetch("onnx", url);
        return;
      }
      if (tab === "search" || isEncoder(url)) {
        await toSearch({ url, keep: true, replaces: !touches });
        return;
      }
      link(url, location.hash, !touches);
      const message = { kind: "load", url, keep: true };
      if (touches) request(message);
      else load(message);
    } catch (error) {
      await refused(error);
    }
  }

  async function refused({ message }) {
    if (openTab() === "language") problem(message);
    else (await graphs).problem(openTab(), message);
  }

  // Back and Forward: the model that the page had there, instead of one that is being loaded.
  async function back() {
    moved = state.loading && Boolean(state.asked);
    if (moved) send({ kind: "cancel" });
    if (state.loading) return;
    try {
      const url = wanted() && await addressOf(wanted());
      if ((url || "") === (state.given?.keep ? state.address : "")) return;  // the page's own have none there
      if (url && (isGraph(url) || isEncoder(url))) (await graphs)?.fetch(isGraph(url) ? "onnx" : "search", url);
      else if (url) request({ kind: "load", url, keep: true });
      else request({ kind: "load", url: absolute(state.site.model), keep: false });
    } catch (error) {
      await refused(error);
    }
  }

  // Gives an encoder, by its address or its files, to the search, which then does not fetch the
  // site's. What was `handed` over from here does not come back.
  async function toSearch({ url, files, keep, replaces }, handed = false) {
    const all = await views();
    if (url) all.fetch("search", url, keep, handed);
    else all.drop("search", files, document.body, handed);
    if (keep) link(url, "#search", replaces);
    open("search");
  }

  // Gives a language model that was meant for the search to the tab that writes.
  function toLanguage({ url, files }) {
    open("language");
    if (url) link(url, "");
    request({ ...(url ? { kind: "load", url, keep: true } : { kind: "file", files }), handed: true });
  }

  // Files go to the open tab; an ONNX file that is dropped on the first tab opens the ONNX tab.
  async function dropped(files, place) {
    if (!files.length) return;
    if (openTab() === "language" && files.some((file) => /\.onnx$/i.test(file.name))) open("onnx");
    if (openTab() === "onnx" && files.some((file) => /\.gguf$/i.test(file.name))) open("language");
    if (openTab() !== "language") (await graphs)?.drop(openTab(), files, place);
    else if (busy() || state.loading) problem("The page is at work with its model. Wait, or stop it, and drop the file again.");
    else request({ kind: "file", files });
  }

  function listen() {
    $("url-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (!$("load").disabled) visit($("url").value);
    });
    $("file").addEventListener("change", () => {
      const files = [...$("file").files];
      if (files.length) request({ kind: "file", files });
      $("file").value = "";
    });
    window.addEventListener("popstate", back);
    for (const name of ["dragover", "dragleave", "drop"]) {
      document.addEventListener(name, (event) => {
        event.preventDefault();
        for (const place of document.querySelectorAll(".drop")) place.classList.toggle("over", name === "dragover");
        if (name === "drop") dropped([...event.dataTransfer.files], event.target);
      });
    }
  }

  return {
    listen, visit, toSearch,
    receive: async (message) => (await graphs)?.receive(message),
    // No model is being loaded any more.
    settled: () => { if (moved) back(); },
    stop: (tab) => graphs?.then((all) => all.stop(tab)),
    // Python has been started again: what it had opened is opened again.
    restarted() {
      graphs?.then((all) => {
        all.lost();
        if (openTab() !== "language") all.open(openTab());
      });
    },
  };
}
