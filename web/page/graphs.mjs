// ONNX models: the tabs "Search" and "See and hear", loaded when one is first opened.
import { onnx } from "./onnx.mjs";
import { search } from "./search.mjs";
import { sense } from "./sense.mjs";
import { $, megabytes, runsOn, showMemory } from "./show.mjs";

// The side panel of a tab: its model, memory, and where it runs. `take` receives files.
export function side(view, { drop, accept, take, more }) {
  const aside = $(`${view}-side`);
  aside.append($("side").content.cloneNode(true));
  const part = (name) => aside.querySelector(`[data-part="${name}"]`);
  if (more) part("more").append($(more).content.cloneNode(true));
  const input = part("file");
  input.id = `${view}-file`;
  input.accept = accept;
  part("choose").htmlFor = input.id;
  part("drop-text").textContent = drop;
  input.addEventListener("change", () => {
    if (input.files.length) take([...input.files]);
    input.value = "";
  });
  return {
    note(...content) {
      part("notes").replaceChildren(...content);
      part("notes").hidden = !content.length;
    },
    busy(value) { input.disabled = value; },
    show({ name, bytes, memory, backend, threads, alone }, facts) {
      part("name").textContent = name;
      part("facts").textContent = [megabytes(bytes), ...facts].join("; ");
      part("measured").hidden = false;
      showMemory(part("bar"), part("memory"), memory);
      if (backend) part("machine").textContent = runsOn(backend, threads, alone);
    },
  };
}

// `visit` opens a model by its address, in a tab; `toLanguage` opens one that writes.
export function graphs(send, settings, visit, toLanguage) {
  const ask = (view) => (request, files) => send({ kind: "graphs", view, request, files });
  const views = {
    search: search(ask("search"), side, settings.encoder ?? {}, { visit, toLanguage }),
    onnx: onnx(ask("onnx"), side, settings.senses?.names && new URL(settings.senses.names, location.href).href, (text) => visit(text, "onnx")),
    sense: sense(ask("sense"), settings.senses ?? {}),
  };
  send({ kind: "shelf" });
  return {
    fetch: (name, ...rest) => views[name].fetch(...rest),
    problem: (name, text) => views[name].problem(text),
    open: (name) => views[name].open?.(),
    drop: (name, files, place, handed) =>
      (name === "onnx" && views.sense.take(files, views.onnx.takes, place)) || views[name].take(files, handed),
    stop(name) {
      views[name].stop();
      if (name === "onnx") views.sense.stop();
    },
    lost: () => Object.values(views).forEach((view) => view.lost()),
    receive({ view, event, ...content }) {
      views[view].on[event]?.(content);
      if (event === "model" || event === "encoder") send({ kind: "shelf" });
    },
  };
}
