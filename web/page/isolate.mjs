// Cross-origin isolation on hosts that set no headers: a service worker adds them, which takes one
// reload at the first visit. Without it everything works on one thread.
const PATIENCE = 3000;  // milliseconds
const TRIED = "halfbyte-isolated";

export async function isolate() {
  if (self.crossOriginIsolated || !navigator.serviceWorker || sessionStorage.getItem(TRIED)) return;
  sessionStorage.setItem(TRIED, "yes");
  try {
    const registration = await navigator.serviceWorker.register("sw.js");
    const late = new Promise((resolve) => setTimeout(resolve, PATIENCE));
    if (!registration || !await Promise.race([navigator.serviceWorker.ready, late])) return;
  } catch {
    return;
  }
  location.reload();
  await new Promise(() => {});
}
