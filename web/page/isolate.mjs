// Cross-origin isolation on hosts that do not send the headers: a service worker adds them, after
// one reload at the first visit. Without isolation everything runs on one thread.
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
