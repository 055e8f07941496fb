// Pyodide with halfbyte, in a worker or on the main thread: the same code.
export async function start(wheel) {
  const { loadPyodide } = await import("/pyodide/pyodide.mjs");
  const pyodide = await loadPyodide({ indexURL: "/pyodide/" });
  await pyodide.loadPackage(["numpy", "micropip"]);
  const micropip = pyodide.pyimport("micropip");
  await micropip.install(new URL(`/wheel/${wheel}`, self.location.href).href);
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
