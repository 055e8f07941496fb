// Starting Python with halfbyte; the second time from what the first one left.
//
// What takes long is the interpreter's own start and compiling Python's modules. Both leave
// something that can be kept: a snapshot of the interpreter's memory (Pyodide makes and restores
// them; only before packages are loaded), and bytecode. They are kept in the browser's cache under
// the lock file's hash, so another Pyodide, NumPy or halfbyte starts afresh.
const CACHE = "halfbyte-start";
const folder = new URL("pyodide/", import.meta.url).href;

async function kept(key) {
  const cache = await caches.open(CACHE);
  const answers = await Promise.all(["snapshot", "bytecode"].map((name) => cache.match(`${name}-${key}`)));
  if (!answers.every(Boolean)) return undefined;
  const [snapshot, bytecode] = await Promise.all(answers.map((answer) => answer.arrayBuffer()));
  return { snapshot, bytecode };
}

async function load(options) {
  const { loadPyodide } = await import("./pyodide/pyodide.mjs");
  return Promise.race([loadPyodide({ indexURL: folder, ...options }), missing()]);
}

// Rejects where a file is missing; Pyodide itself would wait for it for ever.
async function missing() {
  const answer = await fetch(`${folder}pyodide.asm.wasm`, { method: "HEAD" });
  if (!answer.ok) throw new Error(`pyodide.asm.wasm: the server answered ${answer.status}`);
  return new Promise(() => {});
}

// A wheel, or a zip archive of bytecode, over the packages.
export function unpack(pyodide, archive) {
  const extractDir = pyodide.runPython("import sysconfig; sysconfig.get_path('purelib')");
  pyodide.unpackArchive(archive, "zip", { extractDir });
}

// Pyodide, and whether it came from what was kept.
export async function startPyodide(key, packages) {
  let found;
  try {
    found = key && await kept(key);
    if (found) {
      const pyodide = await load({ packages, _loadSnapshot: found.snapshot });
      unpack(pyodide, found.bytecode);
      return { pyodide, fromSnapshot: true };
    }
  } catch (error) {
    console.warn(`the kept start was of no use: ${error}`);
    await caches.delete(CACHE);
  }
  return { pyodide: await load({ packages }), fromSnapshot: false };
}

// Bytecode of modules that are imported later than at the start, under a name of its own.
export async function unpackKept(pyodide, name, key) {
  const answer = key && await (await caches.open(CACHE)).match(`${name}-${key}`);
  if (!answer) return false;
  unpack(pyodide, await answer.arrayBuffer());
  return true;
}

export async function keepBytecode(name, key, bytecode) {
  const cache = await caches.open(CACHE);
  await cache.put(`${name}-${key}`, new Response(bytecode));
}

// Asks for a file now. Who fetches it later gets this answer; who fetches again asks again.
export function fetchEarly(url) {
  let answer = fetch(url);
  answer.catch(() => {});  // told to whoever fetches
  return {
    fetch(...rest) {
      const first = answer;
      answer = undefined;
      return first ?? fetch(...rest);
    },
  };
}

// In a worker of its own, when nobody waits: makes the snapshot and keeps both.
export async function keepStart({ key, modules, bytecode }) {
  const pyodide = await load({ _makeSnapshot: true });
  pyodide.runPython(`
import importlib
for name in ${JSON.stringify(modules)}:
    importlib.import_module(name)
del importlib, name
`);
  const snapshot = pyodide.makeMemorySnapshot();
  await caches.delete(CACHE);  // of other versions
  const cache = await caches.open(CACHE);
  await cache.put(`snapshot-${key}`, new Response(snapshot));
  await cache.put(`bytecode-${key}`, new Response(bytecode));
}
