// The service worker: isolates the page on hosts that do not send the headers, after one reload at
// the first visit (without isolation everything runs on one thread), and keeps the site for visits
// without a network.
import { serviceWorkers, session } from "./storage.mjs";

const PATIENCE = 3000;  // milliseconds
const TRIED = "halfbyte-isolated";

export async function isolate() {
  if (self.crossOriginIsolated || !serviceWorkers || !session || session.getItem(TRIED)) return;
  try {
    session.setItem(TRIED, "yes");
    const registration = await serviceWorkers.register(new URL("sw.js", import.meta.url));
    const late = new Promise((resolve) => setTimeout(resolve, PATIENCE));
    if (!registration || !await Promise.race([serviceWorkers.ready, late])) return;
  } catch {
    return;
  }
  location.reload();
  await new Promise(() => {});
}

// Keeps the site's files; calls `kept` once the page can start without its server.
export async function keepSite(kept) {
  if (!serviceWorkers) return;
  serviceWorkers.addEventListener("message", ({ data }) => { if (data === "kept") kept(); });
  try {
    await serviceWorkers.register("sw.js");
    (await serviceWorkers.ready).active.postMessage("keep");
  } catch {
    // the page works without
  }
}
