// The models that a page can open: by file, by address, or from those that the browser keeps.
import { $, make, megabytes, refill, runsOn, showMemory } from "./show.mjs";
import { store } from "./storage.mjs";

const HUB = "https://huggingface.co";
const ON_HUB = /^(?:https?:\/\/)?(?:www\.)?(?:hf\.co|huggingface\.co)\//;
const FILE_PAGE = /^[^:]*\/(?:blob|resolve)\//;
const AFTER_NAME = /\/?(?:\/tree\/main\/?)?(?:[?#].*)?$/;  // of a repository's page
const NAME = /^([\w.-]+\/[\w.-]+)(?:[:/]([\w./-]+))?$/;
const NO_MODEL = /(?<!-00001)-of-\d{5}\.gguf$|(?:^|[/._-])(?:mmproj|imatrix)/i;  // other parts, pictures
const KINDS = {  // of files, the preferred first; as `halfbyte pull` prefers them
  gguf: ["Q4_K_M", "Q4_0", "Q8_0"].map(tagged),
  onnx: [/int8|quantized/i, /model\.onnx$/],
};

const ENCODERS = "halfbyte-encoders";  // addresses of encoders that have been opened
const MOST = 50;

export const isEncoder = (url) => (store.read(ENCODERS) ?? []).includes(url);
export const markEncoder = (url) => store.write(
  ENCODERS, [...(store.read(ENCODERS) ?? []).filter((other) => other !== url), url].slice(-MOST));

// Whether an address is one of an ONNX file.
export const isGraph = (url) => /\.onnx$/i.test(url.split(/[?#]/)[0]);

// Matches names of files with this type of weights, such as Q4_K_M.
function tagged(type) {
  return new RegExp(`(?<![A-Za-z0-9])${type.replace(/[^\w-]/g, "\\$&")}(?=[./-])`, "i");
}

// The address of a model's file: of a page that shows the file, or of a hub's ORG/NAME, ORG/NAME:TAG
// (a type of weights), ORG/NAME:FILE or ORG/NAME/FILE, also after hf.co/. `kind` is the kind of file
// that a name without one means. Throws if there is none.
export async function addressOf(text, kind = "gguf") {
  const given = text.trim();
  const path = given.replace(ON_HUB, "");
  const onHub = path !== given;
  if (onHub && FILE_PAGE.test(path)) return `${HUB}/${path.replace("/blob/", "/resolve/")}`;
  const [, repository, wanted] = NAME.exec(onHub ? path.replace(AFTER_NAME, "") : given) ?? [];
  if (!repository) return given.replace("/blob/", "/resolve/");
  const file = /\.(gguf|onnx)$/i.test(wanted) ? wanted : await chosen(repository, kind, wanted);
  return `${HUB}/${repository}/resolve/main/${file}`;
}

// The file of a repository to open: of type `tag`, or the preferred one.
async function chosen(repository, kind, tag) {
  const answer = await fetch(`${HUB}/api/models/${repository}`).catch(() => ({}));
  if (!answer.ok) throw new Error(`${repository}: the hub ${answer.status ? `answered ${answer.status}` : "does not answer, or this device is offline"}`);
  const { siblings = [] } = await answer.json();
  const names = siblings.map(({ rfilename }) => rfilename).filter((name) => name.endsWith(`.${kind}`) && !NO_MODEL.test(name)).sort();
  if (!names.length) throw new Error(`${repository}: holds no ${kind.toUpperCase()} file`);
  const types = tag ? [tagged(tag)] : KINDS[kind];
  const best = types.map((type) => names.find((name) => type.test(name))).find(Boolean);
  if (tag && !best) throw new Error(`${repository}: no ${kind.toUpperCase()} file of type ${tag}; there is ${names.slice(0, 12).join(", ")}`);
  return best ?? names[0];
}

// A file's name in an address as people read it, unless its percent signs mean nothing.
function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

// The shelf: models that the browser keeps; encoders stand in the tab for search once it was opened.
// `open` and `remove` are called with an address.
export function shelf({ open, remove }) {
  const fill = (prefix, models) => {
    $(`${prefix}shelf-box`).hidden = !models.length;
    refill($(`${prefix}shelf`), models.map(({ url, size, total }) => {
      const name = decoded(url.split(/[?#]/)[0].split("/").pop());
      const button = make("button", { type: "button", class: "tool", title: url }, `${name} `,
        make("span", { class: "unit", textContent: total ? `${megabytes(size)} of ${megabytes(total)}` : megabytes(size) }));
      button.addEventListener("click", () => open(url));
      const away = make("button", { type: "button", class: "tool", "aria-label": `Remove ${name}`, textContent: "✕" });
      away.addEventListener("click", () => remove(url));
      return make("li", { class: "row" }, button, away);
    }));
  };
  return ({ models }) => {
    const searches = ({ url }) => $("search-shelf") && isEncoder(url);
    fill("", models.filter((model) => !searches(model)));
    if ($("search-shelf")) fill("search-", models.filter(searches));
  };
}

// The card of the model that is open.
export function showModel(model) {
  $("model-name").textContent = model.name;
  $("model-name").dataset.loaded = "yes";
  $("model-facts").textContent =
    `${megabytes(model.bytes)} of weights, mostly ${model.type}; ` +
    `${model.vocabulary.toLocaleString("en")} tokens; context ${model.context.toLocaleString("en")}`;
  $("machine").textContent = runsOn(model.backend, model.threads, model.alone);
  $("notes").textContent = model.notes.join(" ");
  $("notes").hidden = !model.notes.length;
  $("length").max = model.context;
  showMemory($("memory-bar"), $("memory"), model.memory);
}

export const absolute = (address) => new URL(address, location.href).href;

// The address of a model in the page's own address: a link to the page with that model.
export const wanted = () => new URL(location.href).searchParams.get("model");

// Gives the page's address that of a model, "" for none, and the tab in which it opens; `replaces`
// the address, where nobody has moved from it.
export function link(url, tab, replaces = false) {
  const there = new URL(location.href);
  if ((wanted() ?? "") === url && there.hash === tab) return;
  if (url) there.searchParams.set("model", url);
  else there.searchParams.delete("model");
  there.hash = tab;
  if (replaces) history.replaceState(null, "", there);
  else history.pushState(null, "", there);
}
