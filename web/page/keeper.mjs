// The worker that keeps what makes the next start short; see start.mjs.
import { keepStart } from "./start.mjs";

self.onmessage = async ({ data }) => {
  try {
    await keepStart(data);
    self.postMessage("kept");
  } catch (error) {
    self.postMessage(`not kept: ${error}`);
  }
};
