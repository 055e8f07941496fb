// Starts Python with halfbyte; after the first time from stored results.
//
// Most of the time goes into starting the interpreter and compiling Python's modules. The results
// can be stored: a snapshot of the interpreter's memory (Pyodide creates and restores them, only
// before packages are loaded), and bytecode. They are stored in the browser's cache under the lock
// file's hash, so that another version of Pyodide, NumPy or halfbyte starts without them.
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
  if (typeof WebAssembly === "undefined") throw new Error("this browser does not support WebAssembly, or has disabled it. Enable it, or use another browser.");
  try {
    new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]));
  } catch {
    throw new Error(FORBIDDEN);
  }
}

// If the compiler fails, Pyodide waits forever, but `failed` rejects. Also accepts WebAssembly from
// servers that send another content type, which streaming refuses.
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
      if (imports) fail(error);  // without imports, Pyodide only checks what the engine supports
      throw error;
    }
  };
  failed.catch(() => {});  // the rejection is handled where it is awaited
  WebAssembly.instantiate = WebAssembly.instantiateStreaming = watched;
  return { failed, end: () => Object.assign(WebAssembly, { instantiate, instantiateStreaming }) };
}

// Names a missing file of Pyodide, which the original error does not.
async function present() {
  for (const name of ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"]) {
    const answer = await fetch(folder + name, { method: "HEAD" }).catch((error) => ({ status: error.message }));
    if (!answer.ok) throw new Error(`pyodide/${name}: the server answered ${answer.status}`);
  }
}

// Unpacks a wheel, or a zip archive of bytecode, over the packages.
export function unpack(pyodide, archive) {
  const extractDir = pyodide.runPython("import sysconfig; sysconfig.get_path('purelib')");
  pyodide.unpackArchive(archive, "zip", { extractDir });
}

// Starts Pyodide; returns it, and whether it came from a stored snapshot.
export async function startPyodide(key, packages) {
  try {
    const stored = key && await kept(key);
    if (stored) {
      const pyodide = await load({ packages, _loadSnapshot: stored.snapshot });
      unpack(pyodide, stored.bytecode);
      return { pyodide, fromSnapshot: true };
    }
  } catch (error) {
    console.warn(`the stored snapshot could not be used: ${error}`);
    await dropCache(CACHE);
  }
  return { pyodide: await load({ packages }), fromSnapshot: false };
}

// Unpacks stored bytecode of modules that are imported after the start, under a name of its own.
export async function unpackKept(pyodide, name, key) {
  const answer = key && await (await openCache(CACHE))?.match(`${name}-${key}`);
  if (!answer) return false;
  unpack(pyodide, await answer.arrayBuffer());
  return true;
}

export async function keepBytecode(name, key, bytecode) {
  await (await openCache(CACHE))?.put(`${name}-${key}`, new Response(bytecode));
}

// Requests a file now. The first later fetch gets this response; others send new requests.
export function fetchEarly(url) {
  let answer = fetch(url);
  answer.catch(() => {});  // the rejection is handled by the later fetch
  return {
    fetch(...rest) {
      const first = answer;
      answer = undefined;
      return first ?? fetch(...rest);
    },
  };
}

// Counts the bytes of responses whose sizes are known, until `end` is called.
export function countBytes(sizes, told) {
  const { fetch } = self;
  const total = Object.values(sizes).reduce((sum, size) => sum + size, 0);
  let done = 0;
  const counter = () => new TransformStream({
    transform(chunk, controller) {
      done += chunk.length;
      told(done, total);
      controller.enqueue(chunk);
    },
  });
  self.fetch = async (resource, options) => {
    const answer = await fetch(resource, options);
    const known = Object.keys(sizes).some((name) => answer.url.endsWith(`/${name}`));
    return known && answer.ok && answer.body ? new Response(answer.body.pipeThrough(counter()), answer) : answer;
  };
  return () => { self.fetch = fetch; };
}

export const keeps = async () => Boolean(await openCache(CACHE));

// Runs in a worker of its own, in the background: creates the snapshot and stores both.
export async function keepStart({ key, modules, bytecode }) {
  const pyodide = await load({ _makeSnapshot: true });
  pyodide.runPython(`
import importlib
for name in ${JSON.stringify(modules)}:
    importlib.import_module(name)
del importlib, name
`);
  const snapshot = pyodide.makeMemorySnapshot();
  await dropCache(CACHE);  // entries of other versions
  const cache = await openCache(CACHE);
  await cache.put(`snapshot-${key}`, new Response(snapshot));
  await cache.put(`bytecode-${key}`, new Response(bytecode));
}
