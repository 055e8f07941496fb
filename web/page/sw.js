// Adds the headers of cross-origin isolation to every response of this origin.
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (new URL(request.url).origin !== self.location.origin) return;
  event.respondWith((async () => {
    const answer = await fetch(request);
    if (answer.type === "opaqueredirect" || answer.status === 304) return answer;
    const headers = new Headers(answer.headers);
    headers.set("Cross-Origin-Opener-Policy", "same-origin");
    headers.set("Cross-Origin-Embedder-Policy", "require-corp");
    headers.set("Cross-Origin-Resource-Policy", "same-origin");
    return new Response(answer.body, { status: answer.status, statusText: answer.statusText, headers });
  })());
});
