import { start } from "./python.mjs";

const wheel = new URL(self.location.href).searchParams.get("wheel");
try {
  const run = await start(wheel, "lock");
  self.onmessage = async ({ data }) => self.postMessage(await run(data));
  self.postMessage("ready");
} catch (error) {
  self.postMessage(String(error.stack ?? error));
}
