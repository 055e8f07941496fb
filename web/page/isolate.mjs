// Cross-origin isolation on hosts that set no headers: a service worker adds them, which takes one
// reload at the first visit. Without it everything works on one thread.
import { serviceWorkers, session } from "./storage.mjs";

const PATIENCE = 3000;  // milliseconds
const TRIED = "halfbyte-isolated";

export async function isolate() {
  if (self.crossOriginIsolated || !serviceWorkers || !session || session.getItem(TRIED)) return;
  try {
    session.setItem(TRIED, "yes");
    const registration = await serviceWorkers.register("sw.js");
    const late = new Promise((resolve) => setTimeout(resolve, PATIENCE));
    if (!registration || !await Promise.race([serviceWorkers.ready, late])) return;
  } catch {
    return;
  }
  location.reload();
  await new Promise(() => {});
}
