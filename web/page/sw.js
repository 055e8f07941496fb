// Keeps the site, so that it starts without its server: files by their hashes, which site.json
// lists. Adds the headers of cross-origin isolation to every response of this origin, and the
// Content-Security-Policy to those of the site, because workers take theirs from their response.
//
// Every visit asks the server for site.json first; only where nobody answers is the last one used.
// If the answer is another site's, this service worker removes itself.
const CACHE = "halfbyte-site";
const PATIENCE = 4000;  // milliseconds
const ISOLATION = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Cross-Origin-Resource-Policy": "same-origin",
};
let site;  // a promise of site.json's content
let away = false;  // whether the server did not answer when it was asked last

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

const address = (name, hash) => new URL(`${name}?${hash}`, self.registration.scope).href;

async function ask() {
  const late = new Promise((_, reject) => { setTimeout(reject, PATIENCE); });
  const answer = await Promise.race([fetch("site.json", { cache: "no-cache" }), late]);
  if (answer.status >= 500) throw new Error(`a proxy answers ${answer.status} for it`);
  return answer;
}

async function look() {
  const cache = await caches.open(CACHE);
  let answer;
  try {
    answer = await ask();
    away = false;
  } catch {
    away = true;
    return (await cache.match("site.json"))?.json() ?? { files: {} };
  }
  const found = await answer.clone().json().catch(() => ({}));
  if (!found.files) {
    await self.registration.unregister();
    return { files: {} };
  }
  await cache.put("site.json", answer).catch(() => {});  // a full storage
  const current = new Set(Object.entries(found.files).map(([name, hash]) => address(name, hash)));
  for (const { url } of await cache.keys()) {
    if (url.startsWith(self.registration.scope) && url.includes("?") && !current.has(url)) await cache.delete(url);
  }
  return found;
}

// Stores a response if its bytes are those that are listed.
async function keep(name, hash, answer) {
  const data = await answer.clone().arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", data));
  const hex = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  if (hex === hash) await (await caches.open(CACHE)).put(address(name, hash), answer);
}

// The name of the site's file that a request asks for; undefined outside of the site.
function nameOf({ url }) {
  const { scope } = self.registration;
  if (!url.startsWith(scope)) return undefined;
  try {
    return decodeURIComponent(url.slice(scope.length).replace(/[?#].*/, "")).replace(/(^|\/)$/, "$1index.html");
  } catch {
    return undefined;  // percent signs that mean nothing
  }
}

// The policy of a file: that of its folder's page, or the site's; undefined for files beside it.
async function policyOf(name) {
  const { files, policies = {} } = await (site ??= look());
  const folder = Object.keys(policies).filter((one) => name.startsWith(one)).sort().at(-1);
  return folder || name in files ? policies[folder] : undefined;
}

async function find(event, name) {
  const { request } = event;
  if (name === undefined || request.method !== "GET" || request.headers.has("Range")) return fetch(request);
  if (request.mode === "navigate") site = look();
  const known = await (site ??= look());
  const cache = await caches.open(CACHE);
  if (name === "site.json") {
    const last = await cache.match(name);
    return away && last ? last : fetch(request).catch((error) => last ?? Promise.reject(error));
  }
  const hash = known.files[name];
  const kept = hash && await cache.match(address(name, hash));
  if (kept) return kept;
  const answer = await fetch(request);
  if (hash && answer.status === 200) event.waitUntil(keep(name, hash, answer.clone()).catch(() => {}));
  return answer;
}

self.addEventListener("fetch", (event) => {
  if (new URL(event.request.url).origin !== self.location.origin) return;
  event.respondWith((async () => {
    const name = nameOf(event.request);
    const answer = await find(event, name);
    if (answer.type === "opaqueredirect" || answer.status === 304) return answer;
    const headers = new Headers(answer.headers);
    for (const [header, value] of Object.entries(ISOLATION)) headers.set(header, value);
    const policy = name !== undefined && await policyOf(name);
    if (policy) headers.append("Content-Security-Policy", policy);
    return new Response(answer.body, { status: answer.status, statusText: answer.statusText, headers });
  })());
});

// "keep": everything that the page starts with, and what its tabs need but their models.
self.addEventListener("message", (event) => {
  if (event.data !== "keep") return;
  event.waitUntil((async () => {
    const { files, model } = await (site ??= look());
    const cache = await caches.open(CACHE);
    for (const [name, hash] of Object.entries(files)) {
      if (name.startsWith("models/") && name !== model) continue;
      if (await cache.match(address(name, hash))) continue;
      const answer = await fetch(name, { cache: "no-cache" });
      if (answer.ok) await keep(name, hash, answer);
    }
    event.source.postMessage("kept");
  })().catch(() => {}));
});
