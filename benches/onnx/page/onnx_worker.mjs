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
import base64, os, time
from pathlib import Path
import numpy as np
import halfbyte
os.environ["HALFBYTE_KERNELS"] = str(
    Path(halfbyte.__path__[0]) / ${JSON.stringify(KERNELS[query.get("engine")])})
options = halfbyte.SessionOptions()
options.intra_op_num_threads = ${Number(query.get("threads") ?? 1)}
session = halfbyte.InferenceSession(content.to_bytes(), options)
del content

def measure(feeds, runs, every):
    arrays = {
        name: np.frombuffer(base64.b64decode(text), kind).reshape(shape)
        for name, kind, shape, text in feeds
    }
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        outputs = session.run(None, arrays)
        seconds.append(time.perf_counter() - start)
    names = [output.name for output in session.get_outputs()]
    listed = [
        [name, x.dtype.name, list(x.shape), base64.b64encode(x.tobytes()).decode()]
        for name, x in zip(names, outputs if every else outputs[:1])
    ]
    return {"seconds": seconds, "outputs": listed}
`);
  return pyodide;
}

try {
  const pyodide = await start();
  self.onmessage = ({ data: { feeds, runs, all } }) => {
    try {
      const times = pyodide.globals.get("measure")(pyodide.toPy(feeds), runs, all);
      self.postMessage(times.toJs({ dict_converter: Object.fromEntries }));
    } catch (error) {
      self.postMessage({ error: String(error.message ?? error) });
    }
  };
  self.postMessage("ready");
} catch (error) {
  self.postMessage({ error: String(error.stack ?? error) });
}
