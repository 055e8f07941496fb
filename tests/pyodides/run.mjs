// Runs a script in a Pyodide under Node and prints what its function `outcome` returns:
//
//     node run.mjs FOLDER WORKERS SCRIPT PACKAGE... -- FILE...
//
// Packages are wheels to load; files appear in the folder /files of Pyodide's file system. Node has
// no web workers: with WORKERS "yes" this lends the page's interface to Node's own threads.
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { resolveObjectURL } from "node:buffer";
import { pathToFileURL } from "node:url";
import { Worker as NodeWorker } from "node:worker_threads";

const INSIDE = `
const { parentPort } = require("node:worker_threads");
globalThis.postMessage = (data) => parentPort.postMessage(data);
globalThis.close = () => parentPort.close();
parentPort.on("message", (data) => onmessage({ data }));
`;

class WebWorker {
  constructor(url) {
    this.thread = resolveObjectURL(url).text().then((text) => {
      const thread = new NodeWorker(INSIDE + text, { eval: true });
      thread.on("message", (data) => this.onmessage?.({ data }));
      thread.on("error", ({ message }) => this.onerror?.({ message, preventDefault() {} }));
      return thread;
    });
  }

  postMessage(data) {
    this.thread.then((thread) => thread.postMessage(data));
  }

  terminate() {
    this.thread.then((thread) => thread.terminate());
  }
}

const [folder, workers, script, ...paths] = process.argv.slice(2);
const [packages, files] = [paths.slice(0, paths.indexOf("--")), paths.slice(paths.indexOf("--") + 1)];
if (workers === "yes") Object.assign(globalThis, { Worker: WebWorker, crossOriginIsolated: true });
try {
  const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`));
  const pyodide = await loadPyodide({ indexURL: folder });
  await pyodide.loadPackage(packages, { messageCallback() {} });
  pyodide.FS.mkdir("/files");
  for (const file of files) pyodide.FS.writeFile(`/files/${basename(file)}`, readFileSync(file));
  console.log(await pyodide.runPythonAsync(`${readFileSync(script, "utf8")}\nawait outcome()`));
  process.exit(0);
} catch ({ message }) {
  console.error(message);
  process.exit(1);
}
