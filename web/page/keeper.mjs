// A worker that stores what shortens the next start; see start.mjs.
import { keepStart } from "./start.mjs";

self.onmessage = async ({ data }) => {
  try {
    await keepStart(data);
    self.postMessage("kept");
  } catch (error) {
    self.postMessage(`not kept: ${error}`);
  }
};
