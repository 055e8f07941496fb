// Runs one engine: ?engine=NAME. Answers {id, call, given} with {id, value} or {id, error}; before
// that with any number of {id, said}.
import { plain } from "./engine.mjs";

let engine;
const opened = {};  // functions that run a task, by heat

const calls = {
  async start(given) {
    const { start } = await import(`./engines/${given.name}.mjs`);
    engine = await start(given);
  },
  async open({ heat, ...given }) {
    const { run, ...facts } = await engine[heat](given);
    opened[heat] = run;
    return facts;
  },
  run: ({ heat, task }, say) => opened[heat](task, say),
  devices: (given) => engine.devices(given),
  predict: (given) => engine.predict(given),
};

self.onmessage = async ({ data: { id, call, given } }) => {
  try {
    const say = (...said) => self.postMessage({ id, said });
    self.postMessage({ id, value: await calls[call](given, say) });
  } catch (error) {
    self.postMessage({ id, error: plain(error) });
  }
};
