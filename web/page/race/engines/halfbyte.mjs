// halfbyte in Pyodide; `web/race.py` is its other half.
import { startPyodide } from "../../start.mjs";

const plain = (proxy) => proxy.toJs({ dict_converter: Object.fromEntries });

export async function start({ site, threads }) {
  const { pyodide } = await startPyodide(site.start, ["numpy", "halfbyte"]);
  const racer = pyodide.pyimport("halfbyte.web.race").Racer();
  return {
    async write({ model, context }) {
      const facts = plain(await racer.open_text(model, threads, context));
      return { ...facts, run: ({ prompt, count }, say) => plain(racer.write(prompt, count, say)) };
    },
    async encode({ model }) {
      const bytes = pyodide.toPy(new Uint8Array(await model.arrayBuffer())).tobytes();
      const facts = plain(racer.open_graph(bytes, threads));
      return { ...facts, run: ({ ids }) => plain(racer.encode(pyodide.toPy(ids))) };
    },
    devices: () => plain(racer.devices(threads)),
    predict: ({ name, minutes }) => plain(racer.predict(name, threads, minutes)),
  };
}
