// Pyodide with halfbyte, in a worker or on the main thread: the same code;
// halfbyte from the lock file or by micropip.
export async function start(wheel, how) {
  const { loadPyodide } = await import("/pyodide/pyodide.mjs");
  const pyodide = await loadPyodide({ indexURL: "/pyodide/" });
  if (how === "lock") {
    await pyodide.loadPackage("halfbyte");
  } else {
    await pyodide.loadPackage("micropip");
    await pyodide.pyimport("micropip").install(new URL(`/pyodide/${wheel}`, self.location.href).href);
  }
  return async (code) => {
    try {
      pyodide.globals.set("source", code);
      const json = await pyodide.runPythonAsync(`
import json
from pyodide.code import eval_code_async
json.dumps(await eval_code_async(source, {}))
`);
      return { value: JSON.parse(json) };
    } catch (error) {
      return { error: String(error.message ?? error).slice(-4000) };
    }
  };
}
