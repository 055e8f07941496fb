// The view of search by meaning: a text, a question, and the passages nearest to it.
import { $, make, megabytes, milliseconds, notices } from "./show.mjs";

const QUESTIONS = [
  "What can we do with the kids on a rainy day?",
  "I am hungry and it is very early",
  "I have hurt my ankle",
  "Was the town ever destroyed?",
];

export function search(ask, side, encoder) {
  const { wait, problem } = notices("search-");
  const given = $("document").value;
  const card = side("search", {
    drop: "Drop a text or a PDF here, or a sentence encoder (.onnx) with its tokenizer.json, or",
    accept: ".onnx,.json,.txt,.md,.pdf",
    take,
  });
  let ready = false;
  let busy = false;
  let begun = false;
  let facts = [];  // about the encoder
  let own = [];  // the encoder's files, if the user gave them
  let parts = [];  // the files of an incomplete encoder
  let opening = [];  // files that are being opened

  function update() {
    $("search-run").disabled = !ready || busy;
    $("search-stop").disabled = !(busy && ready);
    $("document").readOnly = busy;
    card.busy(busy);
    $("questions").hidden = $("document").value !== given;
    $("passages").setAttribute("aria-busy", String(busy));
  }

  function begin(text, request, files) {
    problem("");
    busy = true;
    wait(text);
    update();
    ask(request, files);
  }

  function end() {
    busy = false;
    wait();
    update();
  }

  function edit(editing) {
    $("document").hidden = !editing;
    $("passages").hidden = editing;
    $("edit").hidden = editing;
    $("text-label").htmlFor = editing ? "document" : "";
  }

  // Files: a model, its tokenizer, or a text to search.
  async function take(files) {
    if (busy) return;
    const text = files.find((file) => /\.(txt|md)$/i.test(file.name) || file.type === "text/plain");
    const pdf = files.find((file) => /\.pdf$/i.test(file.name) || file.type === "application/pdf");
    if (pdf) {
      begin("Reading the PDF", { ask: "pdf" }, [pdf]);
      return;
    }
    if (text) {
      $("document").value = await text.text();
      edit(true);
      update();
      return;
    }
    load(files);
  }

  function load(files) {
    begun = true;
    opening = files;
    begin("Loading the model", { ask: "encoder" }, files);
  }

  function showText(pieces) {
    $("passages").replaceChildren(...pieces.map((piece, i) => (
      i % 2 ? make("span", { class: "passage", textContent: piece }) : piece)));
    edit(false);
  }

  function showHits(hits) {
    const passages = [...$("passages").querySelectorAll(".passage")];
    for (const passage of passages) passage.style.removeProperty("--near");
    const best = Math.max(hits[0].score, 0.01);
    $("hits").replaceChildren(...hits.map(({ passage, score }) => {
      const share = Math.max(score / best, 0);
      const place = passages[passage];
      if (score > 0) place.style.setProperty("--near", `${Math.round(60 * share ** 2)}%`);
      const bar = make("span", { class: "share", "aria-hidden": "true" });
      bar.style.setProperty("--share", `${100 * share}%`);
      const button = make("button", { type: "button" },
        make("span", { class: "text", textContent: place.textContent }),
        make("span", { class: "score", title: "cosine", textContent: score.toFixed(3) }), bar);
      button.addEventListener("click", () => {
        for (const other of passages) other.classList.toggle("shown", other === place);
        place.scrollIntoView({ block: "center", behavior: "smooth" });
      });
      return make("li", {}, button);
    }));
    const nearest = passages[hits[0].passage];
    $("passages").scrollTop = nearest.offsetTop - $("passages").offsetTop - 60;
  }

  const on = {
    progress: ({ text, unit, done, total }) => wait(
      unit === "bytes" ? `${text}: ${megabytes(done)}${total ? ` of ${megabytes(total)}` : ""}` : `${text}: ${done} of ${total}`,
      done, total),
    waiting: ({ text }) => {
      parts.push(...opening);
      end();
      card.note(text);
    },
    encoder: (model) => {
      ready = true;
      [own, parts] = [[...parts, ...opening], []];
      end();
      card.note();
      facts = [`${model.tokens.toLocaleString("en")} tokens`];
      card.show(model, facts);
      $("hits").replaceChildren();
      edit(true);
    },
    read: ({ pieces, passages, each, cut, width }) => {
      facts = [...facts.slice(0, 1), `vectors of ${width.toLocaleString("en")} numbers`];
      showText(pieces);
      $("passage-count").textContent = passages.toLocaleString("en");
      $("passage-time").textContent = milliseconds(each);
      card.note(...(cut ? [`${cut} passage${cut > 1 ? "s were" : " was"} longer than the model accepts, and cut.`] : []));
    },
    found: ({ hits, seconds, ...model }) => {
      end();
      showHits(hits);
      $("question-time").textContent = milliseconds(seconds);
      $("search-state").textContent = `${hits.length} nearest passages`;
      card.show(model, facts);
    },
    text: ({ text: found }) => {
      end();
      $("document").value = found;
      edit(true);
      update();
    },
    stopped: () => {
      end();
      $("search-state").textContent = "Stopped.";
    },
    error: ({ text }) => {
      opening = [];
      end();
      problem(text);
    },
  };

  $("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if ($("search-run").disabled) return;
    $("search-state").textContent = "";
    begin("Searching", { ask: "search", text: $("document").value, question: $("question").value });
  });
  $("search-stop").addEventListener("click", () => ask({ ask: "stop" }));
  $("edit").addEventListener("click", () => {
    edit(true);
    $("document").focus();
  });
  $("document").addEventListener("input", update);
  $("questions").append(...QUESTIONS.map((text) => {
    const button = make("button", { type: "button", class: "chip", textContent: text });
    button.addEventListener("click", () => {
      $("question").value = text;
      $("search-form").requestSubmit();
    });
    return button;
  }));
  update();

  return {
    on,
    take,
    stop: () => { if (busy) ask({ ask: "stop" }); },
    // Python was restarted without the model; `open` loads it again.
    lost() {
      ready = begun = false;
      [opening, parts] = [[], []];
      end();
    },
    // The site's encoder is downloaded when the tab is first opened.
    open() {
      if (begun) return;
      if (own.length) {
        load(own);
        return;
      }
      begun = true;
      if (!encoder.model) {
        card.note($("no-encoder").content.cloneNode(true));
        return;
      }
      const address = (name) => new URL(encoder[name], location.href).href;
      begin("Starting", { ask: "fetch", model: address("model"), tokenizer: address("tokenizer") });
    },
  };
}
