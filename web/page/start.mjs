// Starting Python with halfbyte; the second time from what the first one left.
//
// What takes long is the interpreter's own start and compiling Python's modules. Both leave
// something that can be kept: a snapshot of the interpreter's memory (Pyodide makes and restores
// them; only before packages are loaded), and bytecode. They are kept in the browser's cache under
// the lock file's hash, so another Pyodide, NumPy or halfbyte starts afresh.
import { dropCache, openCache } from "./storage.mjs";

const CACHE = "halfbyte-start";
const FORBIDDEN = "the server's Content-Security-Policy forbids WebAssembly: its script-src needs 'wasm-unsafe-eval'";
const folder = new URL("pyodide/", import.meta.url).href;

async function kept(key) {
  const cache = await openCache(CACHE);
  if (!cache) return undefined;
  const answers = await Promise.all(["snapshot", "bytecode"].map((name) => cache.match(`${name}-${key}`)));
  if (!answers.every(Boolean)) return undefined;
  const [snapshot, bytecode] = await Promise.all(answers.map((answer) => answer.arrayBuffer()));
  return { snapshot, bytecode };
}

async function load(options) {
  mayCompile();
  const watch = watchCompiler();
  try {
    const { loadPyodide } = await import("./pyodide/pyodide.mjs");
    return await Promise.race([loadPyodide({ indexURL: folder, ...options }), watch.failed]);
  } catch (error) {
    if (/content.security.policy|\bCSP\b/i.test(error.message)) throw new Error(FORBIDDEN);
    await present();
    throw error;
  } finally {
    watch.end();
  }
}

function mayCompile() {
  if (typeof WebAssembly === "undefined") throw new Error("this browser runs no WebAssembly, or has turned it off. Use another, or turn it on.");
  try {
    new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]));
  } catch {
    throw new Error(FORBIDDEN);
  }
}

// Where the compiler fails, Pyodide waits for ever: `failed` rejects. Also takes the WebAssembly of
// servers that call it something else, which streaming refuses.
function watchCompiler() {
  const { instantiate, instantiateStreaming } = WebAssembly;
  let fail;
  const failed = new Promise((_, reject) => { fail = reject; });
  const watched = async (source, imports) => {
    try {
      const answer = await source;
      if (!(answer instanceof Response)) return await instantiate(answer, imports);
      if (!answer.ok) throw new Error(`pyodide.asm.wasm: the server answered ${answer.status}`);
      if (instantiateStreaming && answer.headers.get("Content-Type") === "application/wasm") return await instantiateStreaming(answer, imports);
      return await instantiate(await answer.arrayBuffer(), imports);
    } catch (error) {
      if (imports) fail(error);  // without them Pyodide only asks what the engine can do
      throw error;
    }
  };
  failed.catch(() => {});  // told to whoever waits for it
  WebAssembly.instantiate = WebAssembly.instantiateStreaming = watched;
  return { failed, end: () => Object.assign(WebAssembly, { instantiate, instantiateStreaming }) };
}

// Names a file of Pyodide that is not there: what fails without it says less.
async function present() {
  for (const name of ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"]) {
    const answer = await fetch(folder + name, { method: "HEAD" }).catch((error) => ({ status: error.message }));
    if (!answer.ok) throw new Error(`pyodide/${name}: the server answered ${answer.status}`);
  }
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
    await dropCache(CACHE);
  }
  return { pyodide: await load({ packages }), fromSnapshot: false };
}

// Bytecode of modules that are imported later than at the start, under a name of its own.
export async function unpackKept(pyodide, name, key) {
  const answer = key && await (await openCache(CACHE))?.match(`${name}-${key}`);
  if (!answer) return false;
  unpack(pyodide, await answer.arrayBuffer());
  return true;
}

export async function keepBytecode(name, key, bytecode) {
  await (await openCache(CACHE))?.put(`${name}-${key}`, new Response(bytecode));
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

export const keeps = async () => Boolean(await openCache(CACHE));

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
  await dropCache(CACHE);  // of other versions
  const cache = await openCache(CACHE);
  await cache.put(`snapshot-${key}`, new Response(snapshot));
  await cache.put(`bytecode-${key}`, new Response(bytecode));
}
