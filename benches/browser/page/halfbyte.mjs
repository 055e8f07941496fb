// halfbyte in a worker, as on its own page; the table of kernels is chosen.
import { fetchEarly, keepStart, startPyodide } from "/start.mjs";

const query = new URL(self.location.href).searchParams;
const engine = query.get("engine");
const model = new URL(query.get("model") ?? "", self.location.href).href;
const KERNELS = { relaxed: "kernels-relaxed.wasm", simd128: "kernels.wasm" };

async function start() {
  if (engine === "pyodide") return startPyodide(undefined, []);
  const settings = await (await fetch("/site.json")).json();
  const fetcher = fetchEarly(model);
  const key = query.has("fresh") ? undefined : settings.start;
  const { pyodide, fromSnapshot } = await startPyodide(key, ["numpy", "halfbyte"]);
  pyodide.globals.set("fetcher", fetcher);
  await pyodide.runPythonAsync(`
import sys
sys.dont_write_bytecode = False
import os, time
import halfbyte
import halfbyte.web.engine
from halfbyte.text.bench import read_bandwidth
from halfbyte.download.browser import FetchSource
from pathlib import Path
kernels = ${JSON.stringify(KERNELS[engine] ?? "")}
if kernels:
    os.environ["HALFBYTE_KERNELS"] = str(Path(halfbyte.__path__[0]) / kernels)
model = await halfbyte.load_url(${JSON.stringify(model)}, keep=False, context=${Number(query.get("context") ?? 256)},
    threads=${Number(query.get("threads") ?? 1)},
    source=lambda: FetchSource(fetcher),
    backend=${JSON.stringify(engine === "numpy" ? "numpy" : "native")})
model.feed([1])

def measure(ids, count):
    model.reset()
    start = time.perf_counter()
    model.feed(ids)
    middle = time.perf_counter()
    model.reset()
    model.feed(ids[:1])
    begin = time.perf_counter()
    for i in range(count):
        model.feed([ids[i % len(ids)]])
    end = time.perf_counter()
    speeds = [len(ids) / (middle - start), count / (end - begin)]
    return speeds + [read_bandwidth(model.executable.threads, 1)] if kernels else speeds
`);
  if (key && !fromSnapshot) setTimeout(() => keep(pyodide, key), 1000);
  return pyodide;
}

async function keep(pyodide, key) {
  const start = pyodide.pyimport("halfbyte.web.start");
  await keepStart({ key, modules: start.standard_modules().toJs(), bytecode: start.bytecode().toJs() });
  self.postMessage({ kept: true });
}

try {
  const pyodide = await start();
  self.onmessage = ({ data: { ids, count } }) => {
    try {
      self.postMessage(pyodide.globals.get("measure")(pyodide.toPy(ids), count).toJs());
    } catch (error) {
      self.postMessage({ error: String(error.message ?? error) });
    }
  };
  self.postMessage({ threads: pyodide.globals.get("model")?.executable.threads ?? 1 });
} catch (error) {
  self.postMessage({ error: String(error.stack ?? error) });
}
