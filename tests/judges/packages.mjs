// Runs a Python program in Pyodide: node packages.mjs DISTRIBUTION '{"program": ..., "packages": [...], ...}'
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [distribution, text] = process.argv.slice(2);
const wanted = JSON.parse(text);
const { loadPyodide } = await import(pathToFileURL(`${distribution}/pyodide.mjs`).href);
const python = await loadPyodide({ indexURL: `${distribution}/` });
await python.loadPackage(["numpy", "micropip", ...wanted.packages], { messageCallback: () => {} });
for (const [place, root] of [["/runtime", wanted.runtime], ["/package", wanted.folder]]) {
  python.FS.mkdirTree(place);
  python.FS.mount(python.FS.filesystems.NODEFS, { root }, place);
}
// compiled modules of this machine in the folder are not found by Pyodide, whose own come first
python.runPython("import os, sys; sys.path.insert(0, '/runtime'); sys.path.append('/package'); os.chdir('/tmp')");
try {
  await python.runPythonAsync(readFileSync(wanted.program, "utf8"));
} catch (error) {
  console.error(String(error.message ?? error).trim().split("\n").slice(-1)[0]);
  process.exit(1);
}
process.exit(0);
