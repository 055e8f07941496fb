// halfbyte's InferenceSession in Python in a worker; the table of kernels is chosen.
import { startPyodide } from "/start.mjs";

const query = new URL(self.location.href).searchParams;
const model = new URL(query.get("model"), self.location.href).href;
const KERNELS = { relaxed: "kernels-relaxed.wasm", simd128: "kernels.wasm" };

async function start() {
  const answer = fetch(model).then((response) => response.arrayBuffer());
  const { pyodide } = await startPyodide(undefined, ["numpy", "halfbyte"]);
  pyodide.globals.set("content", new Uint8Array(await answer));
  pyodide.runPython(`
import os, time
from pathlib import Path
import numpy as np
import halfbyte
os.environ["HALFBYTE_KERNELS"] = str(
    Path(halfbyte.__path__[0]) / ${JSON.stringify(KERNELS[query.get("engine")])})
options = halfbyte.SessionOptions()
options.intra_op_num_threads = ${Number(query.get("threads") ?? 1)}
session = halfbyte.InferenceSession(content.to_bytes(), options)
del content

def measure(feeds, runs):
    arrays = {n: np.array(values, np.int64).reshape(shape) for n, shape, values in feeds}
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        output = session.run(None, arrays)[0]
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds, "output": output.ravel().tolist()}
`);
  return pyodide;
}

try {
  const pyodide = await start();
  self.onmessage = ({ data: { feeds, runs } }) => {
    try {
      const times = pyodide.globals.get("measure")(pyodide.toPy(feeds), runs);
      self.postMessage(times.toJs({ dict_converter: Object.fromEntries }));
    } catch (error) {
      self.postMessage({ error: String(error.message ?? error) });
    }
  };
  self.postMessage("ready");
} catch (error) {
  self.postMessage({ error: String(error.stack ?? error) });
}
