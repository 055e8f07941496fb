// window.ready becomes "ready" or what went wrong; window.run(code) runs Python.
const query = new URL(location.href).searchParams;
const wheel = query.get("wheel");

try {
  if (query.get("place") === "main") {
    const { start } = await import("./python.mjs");
    window.run = await start(wheel, "micropip");
    window.ready = "ready";
  } else {
    const worker = new Worker(`worker.mjs?wheel=${wheel}`, { type: "module" });
    const answer = () => new Promise((resolve) => {
      worker.onmessage = ({ data }) => resolve(data);
      worker.onerror = (event) => resolve(`worker: ${event.message}`);
    });
    const first = answer();
    window.ready = await first;
    window.run = (code) => {
      const next = answer();
      worker.postMessage(code);
      return next;
    };
  }
} catch (error) {
  window.ready = String(error.stack ?? error);
}
