// The view of search by meaning: a text, a question, and the passages nearest to it.
import { markEncoder } from "./models.mjs";
import { $, make, megabytes, milliseconds, notices, share } from "./show.mjs";

const QUESTIONS = [
  "What can we do with the kids on a rainy day?",
  "I am hungry and it is very early",
  "I have hurt my ankle",
  "Was the town ever destroyed?",
];

const LARGEST = 4_000_000;  // bytes of a text: a million characters, of four bytes at most
const MARKS = { 0xfffe: "utf-16le", 0xfeff: "utf-16be" };  // of byte orders, as a file's first two bytes

const isText = ({ name, type }) => /\.(txt|md|csv|log|rst|srt|tex)$/i.test(name) || type.startsWith("text/");

// The text of a file, in whichever encoding it is.
async function textOf(file) {
  if (file.size > LARGEST) throw new Error(`${file.name}: ${megabytes(file.size)}: expected at most ${megabytes(LARGEST)}`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  try {
    return new TextDecoder(MARKS[256 * bytes[0] + bytes[1]] ?? "utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

// `visit` opens a model by its address, `toLanguage` one that writes, which the search has no use for.
export function search(ask, side, encoder, { visit, toLanguage }) {
  const { wait, problem } = notices("search-");
  const given = $("document").value;
  const card = side("search", {
    drop: "Drop a text, a PDF or an encoder here (GGUF, or ONNX with its tokenizer.json), or",
    accept: ".gguf,.onnx,.json,.txt,.md,.pdf,text/*",
    take,
    more: "encoder-more",
  });
  let ready = false;
  let busy = false;
  let begun = false;
  let facts = [];  // about the encoder
  let notes = [];  // about its file
  let own = [];  // the encoder's files, or its `{ url }`, if the user gave them
  let parts = [];  // the files of an incomplete encoder
  let opening = [];  // files that are being opened, or `{ url }`
  let handed = false;  // whether the tab that writes has given them
  let lacking = false;  // whether the site's encoder was stopped, or could not be fetched
  let searches = false;  // whether to search once it has come after all
  let next;  // what to do once the current request has ended

  const fetched = (files) => (files[0]?.url ? files[0] : { files });
  const fetching = () => Boolean(opening[0]?.url);

  // Nothing is under way any more, and perhaps there is no encoder.
  function ended() {
    opening = [];
    [lacking, searches] = [!ready && Boolean(encoder.model) && !own.length, false];
    if (!ready) begun = false;
    end();
  }

  function update() {
    $("search-run").disabled = busy || !(ready || lacking);
    $("search-stop").disabled = !busy;
    $("document").readOnly = busy && ready;
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
    const act = next;
    next = undefined;
    act?.();
  }

  function edit(editing) {
    $("document").hidden = !editing;
    $("passages").hidden = editing;
    $("edit").hidden = editing;
    $("text-label").htmlFor = editing ? "document" : "";
  }

  // Files: a model, its tokenizer, or a text to search. They wait for what is under way to end, but a
  // text does not wait for the first encoder, and other models come instead of it.
  async function take(files, given = false) {
    const text = files.find(isText);
    const pdf = files.find((file) => /\.pdf$/i.test(file.name) || file.type === "application/pdf");
    if (busy && !given && (ready || pdf)) {
      next = () => take(files);
      return;
    }
    if (pdf) begin("Reading the PDF", { ask: "pdf" }, [pdf]);
    else if (text) await show(text);
    else load(files, given);
  }

  // Shows a file's text, to be searched.
  async function show(file) {
    problem("");
    try {
      $("document").value = await textOf(file);
    } catch (error) {
      problem(error.message);
    }
    edit(true);
    update();
  }

  // Loads an encoder after the current request, which is stopped.
  function load(files, given = false, keep = true) {
    begun = true;
    if (busy) {
      next = () => load(files, given, keep);
      ask({ ask: "stop" });
      return;
    }
    [opening, handed] = [files, given];
    const [{ url }] = files;
    begin("Loading the model", url ? { ask: "fetch", url, keep } : { ask: "encoder" }, url ? undefined : files);
  }

  // The site's encoder is downloaded when the tab is first opened.
  function open() {
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
        make("span", { class: "text", dir: "auto", textContent: place.textContent }),
        make("span", { class: "score", title: "cosine", textContent: score.toFixed(3) }), bar);
      button.addEventListener("click", () => {
        for (const other of passages) other.classList.toggle("shown", other === place);
        place.scrollIntoView({ block: "center" });
      });
      return make("li", {}, button);
    }));
    const nearest = passages[hits[0].passage];
    $("passages").scrollTop = nearest.offsetTop - $("passages").offsetTop - 60;
  }

  const paragraph = (textContent) => make("p", { textContent });

  const on = {
    progress: ({ text, unit, done, total }) => wait(
      unit === "bytes" ? share(text, done, total) : `${text}: ${done} of ${total}`,
      done, total),
    waiting: ({ text }) => {
      parts.push(...opening);
      end();
      card.note(text);
    },
    encoder: (model) => {
      ready = true;
      [own, parts] = [[...parts, ...opening], []];
      if (fetching()) markEncoder(own[0].url);
      opening = [];
      [$("question-prompt").value, $("passage-prompt").value] = model.prompts;
      $("prompts").open = model.prompts.some(Boolean);
      end();
      notes = model.notes;
      card.note(...notes.map(paragraph));
      facts = [`${model.tokens.toLocaleString("en")} tokens`];
      card.show(model, facts);
      $("hits").replaceChildren();
      edit(true);
      if (searches) $("search-form").requestSubmit();
      searches = false;
    },
    read: ({ pieces, passages, each, cut, width }) => {
      facts = [...facts.slice(0, 1), `vectors of ${width.toLocaleString("en")} numbers`];
      showText(pieces);
      $("passage-count").textContent = passages.toLocaleString("en");
      $("passage-time").textContent = milliseconds(each);
      const long = cut ? [`${cut} passage${cut > 1 ? "s were" : " was"} longer than the model accepts, and cut.`] : [];
      card.note(...[...notes, ...long].map(paragraph));
    },
    found: ({ hits, seconds, ...model }) => {
      end();
      showHits(hits);
      $("question-time").textContent = milliseconds(seconds);
      $("search-figures").hidden = false;
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
      $("search-state").textContent = "Stopped.";
      ended();
    },
    writes: ({ text }) => {
      const files = opening;
      opening = [];
      end();
      if (handed) problem(text);
      else toLanguage(fetched(files));
    },
    error: ({ text }) => {
      ended();
      problem(text);
    },
  };

  $("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if ($("search-run").disabled) return;
    if (!ready) {
      searches = true;
      open();
      return;
    }
    $("search-state").textContent = "";
    const prompts = [$("question-prompt").value, $("passage-prompt").value];
    begin("Searching", { ask: "search", text: $("document").value, question: $("question").value, prompts });
  });
  $("encoder-form").addEventListener("submit", (event) => {
    event.preventDefault();
    visit($("encoder-url").value, "search");
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
    problem,
    // An encoder by its address.
    fetch(url, keep = true, given = false) {
      if (!ready || own[0]?.url !== url) load([{ url }], given, keep);
    },
    stop: () => { if (busy) ask({ ask: "stop" }); },
    // Python was restarted without the model; `open` loads it again.
    lost() {
      ready = begun = false;
      [opening, parts, next] = [[], [], undefined];
      end();
    },
    open,
  };
}
