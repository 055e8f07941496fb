// Cross-origin isolation on hosts that set no headers: a service worker adds them, which takes one
// reload at the first visit. Without it everything works on one thread.
const TRIED = "halfbyte-isolated";

export async function isolate() {
  if (self.crossOriginIsolated || !navigator.serviceWorker || sessionStorage.getItem(TRIED)) return;
  sessionStorage.setItem(TRIED, "yes");
  try {
    await navigator.serviceWorker.register("sw.js");
    await navigator.serviceWorker.ready;
  } catch {
    return;
  }
  location.reload();
  await new Promise(() => {});
}
