// The race: starts the engines, lets them take turns, then watches halfbyte for five minutes.
//
// ?threads=N   threads of every engine, where the page may have some
import { isolate } from "../isolate.mjs";
import { $, make, megabytes } from "../show.mjs";
import { agreement, figure, race, ROUNDS, turn, verdict } from "./contest.mjs";
import { startEngine, plain } from "./engine.mjs";
import { facilities, lent, threadsFor } from "./facilities.mjs";
import { hot } from "./hot.mjs";
import { laneList } from "./lanes.mjs";
import { share } from "./share.mjs";

const PROMPT = "Once upon a time a fox named Tom lived near a wood. One day Tom went out to look for the sea.";
const COUNT = 64;  // tokens
const CONTEXT = 256;
// 128 tokens, as ids, so that no tokenizer takes part
const IDS = [101, ...Array.from({ length: 126 }, (_, i) => 1996 + (37 * i) % 8000), 102];

const TITLES = { halfbyte: "halfbyte", "wllama-2": "wllama", "wllama-3": "wllama" };
const HEATS = {
  write: {
    name: "write", title: "Writing", unit: "tokens/s", engines: ["halfbyte", "wllama-2", "wllama-3"],
    task: { prompt: PROMPT, count: COUNT },
    measure: ({ tokens, writing }) => [tokens, writing], output: ({ text }) => text,
  },
  encode: {
    name: "encode", title: "Encoding", unit: "texts/s", engines: ["halfbyte", "onnxruntime-web", "transformers.js"],
    task: { ids: IDS },
    measure: ({ seconds }) => [1, seconds], output: ({ output }) => output,
  },
};

const LENT = { threads: "threads", simd: "SIMD", relaxed: "relaxed SIMD", webgpu: "WebGPU" };

const here = facilities();
const threads = Math.max(1, here.threads ? Number(new URL(location.href).searchParams.get("threads")) || threadsFor(here) : 1);
const running = new Map();  // engines by name
let site, stopped = false, hidden = false;

const say = (text) => { $("status").textContent = text; };

function progress(done, total) {
  $("progress").hidden = done === undefined;
  if (total) Object.assign($("progress"), { max: total, value: done });
  else $("progress").removeAttribute("value");
}

// ---- before ---------------------------------------------------------------------------------------

function lineUp(name) {
  const heat = HEATS[name];
  const list = laneList($(`${name}-lanes`), heat.unit);
  for (const engine of heat.engines) {
    const peer = site.peers[engine];
    const lane = list.add({ name: engine, title: TITLES[engine] ?? engine, version: peer?.version ?? site.version });
    if (peer?.problem) lane.fail(`could not be fetched when this site was built (${peer.problem})`);
    else lane.note("");
  }
  heat.lanes = list.lanes;
}

function showLent() {
  const words = [
    here.isolated ? "This page is cross-origin isolated" : "This page is not cross-origin isolated, so nobody has threads",
    `the browser reports ${here.cores} core${here.cores > 1 ? "s" : ""}`,
  ];
  $("lent-here").textContent = `${words.join("; ")}.`;
  const names = [...new Set(Object.values(HEATS).flatMap(({ engines }) => engines))];
  for (const name of names) {
    const cells = lent(name, here, threads);
    const title = `${TITLES[name] ?? name} ${site.peers[name]?.version ?? site.version}`;
    $("lent").tBodies[0].append(make("tr", {}, make("th", { scope: "row" }, title),
      ...Object.entries(LENT).map(([key, text]) => make("td", { "data-name": text }, cells[key]))));
  }
}

// ---- the race -------------------------------------------------------------------------------------

async function download(path) {
  const answer = await fetch(`../${path}`);
  if (!answer.ok) throw new Error(`${path}: the server answered ${answer.status}`);
  const total = Number(answer.headers.get("Content-Length")), parts = [];
  let done = 0;
  for (const reader = answer.body.getReader(); ;) {
    const { value, done: end } = await reader.read();
    if (end) break;
    parts.push(value);
    done += value.length;
    progress(done, total);
  }
  progress();
  return new Blob(parts);
}

async function startLane(lane, heat, model) {
  if (lane.problem) return;
  lane.note("starting …");
  lane.active(true);
  const start = performance.now();
  try {
    if (!running.has(lane.name)) running.set(lane.name, await startEngine({ name: lane.name, site, threads }));
    lane.engine = running.get(lane.name);
    lane.facts = await lane.engine.open({ heat, model, context: CONTEXT });
    lane.facts.started = (performance.now() - start) / 1000;
    lane.note(ready(lane));
  } catch (error) {
    lane.fail(`cannot run here: ${plain(error)}`);
  }
  lane.active(false);
}

const ready = ({ facts }) => `started in ${facts.started.toFixed(1)} s, ${facts.threads} thread${facts.threads > 1 ? "s" : ""}`;

// One turn of a lane: its runs, the figure, and whether it came to the same result as the first.
async function takeTurn(lane, heat, counts) {
  lane.active(true);
  let result;
  const value = await turn(async () => {
    result = await lane.engine.run({ heat: heat.name, task: heat.task }, (text, tokens, seconds) => lane.show(tokens / seconds, text));
    const [work, seconds] = heat.measure(result);
    lane.show(work / seconds, result.text);  // a short run may have told nothing before its end
    return [work, seconds];
  });
  lane.write(result.text);
  lane.active(false);
  if (!counts) return;
  lane.count(value);
  lane.output = heat.output(result);
  const reference = heat.lanes.find(({ output }) => output)?.output;
  const { low, high } = lane.summary;
  lane.note([
    lane.values.length > 1 ? `${figure(low)} to ${figure(high)} in ${lane.values.length} turns` : "one turn",
    ready(lane),
    ...(lane.output === reference ? [] : [agreement(reference, lane.output)]),
  ].join(" · "));
}

async function runHeat(name, path) {
  const heat = HEATS[name];
  say(`${heat.title}: fetching the model`);
  const model = await download(path);
  Object.assign(heat, { model: path.split("/").pop(), bytes: model.size });
  about(name);
  for (const lane of heat.lanes) {
    if (stopped) return;
    say(`${heat.title}: starting ${lane.title}`);
    await startLane(lane, name, model);
  }
  const able = heat.lanes.filter(({ problem }) => !problem).map((lane) => ({
    turn: (counts) => takeTurn(lane, heat, counts),
    fail: (error) => lane.fail(plain(error)),
  }));
  await race(able, {
    now: () => performance.now(),
    stopped: () => stopped,
    round: (round) => say(`${heat.title}: ${round ? `round ${round} of ${ROUNDS}` : "warming up"}`),
  });
  heat.verdict = verdict(heat.lanes.map(({ title, summary: result }) => ({ title, median: result?.median })));
  $(`${name}-verdict`).textContent = heat.verdict;
  for (const lane of heat.lanes.filter(({ name: engine }) => engine !== "halfbyte")) {
    running.get(lane.name)?.close();
    running.delete(lane.name);
  }
}

function about(name) {
  const { model, bytes } = HEATS[name];
  const size = bytes ? ` (${megabytes(bytes)})` : "";
  $(`${name}-about`).textContent = name === "write"
    ? `${model}${size} writes ${COUNT} tokens, in tokens per second.`
    : `A sentence encoder${size} reads ${IDS.length} tokens at once, in texts per second.`;
}

async function heatUp() {
  const halfbyte = running.get("halfbyte");
  const lane = HEATS.write.lanes.find(({ name }) => name === "halfbyte");
  if (!halfbyte || !lane.summary) return undefined;
  return hot({
    engine: halfbyte, speed: lane.summary.median, task: { heat: "write", task: HEATS.write.task }, say, progress,
    stopped: () => stopped, model: await deviceModel(),
  });
}

// The model of the device, where the browser names it (Chromium on Android).
const deviceModel = async () => (await navigator.userAgentData?.getHighEntropyValues?.(["model"]).catch(() => ({})))?.model ?? "";

// Keeps the screen on, again after the tab was in the background; returns what ends that.
function keepAwake() {
  let lock;  // or nothing, where the browser refuses: the page says to keep the tab in front
  const hold = () => {
    if (!document.hidden) lock = navigator.wakeLock?.request("screen").catch(() => undefined);
  };
  document.addEventListener("visibilitychange", hold);
  hold();
  return async () => {
    document.removeEventListener("visibilitychange", hold);
    (await lock)?.release();
  };
}

function results(curve) {
  const lanes = (heat) => heat.lanes.map(({ name, title, version, values, summary: result, problem, facts }) => (
    { engine: name, title, version, ...result, turns: values, problem, ...facts }));
  const heats = Object.entries(HEATS).filter(([, heat]) => heat.bytes).map(([name, heat]) => [name, {
    title: heat.title, unit: heat.unit, model: heat.model, bytes: heat.bytes, verdict: heat.verdict ?? "", lanes: lanes(heat),
  }]);
  return {
    format: "halfbyte race 1", version: site.version, date: new Date().toISOString(), browser: navigator.userAgent,
    where: `${browserName()}, ${here.cores} cores, ${threads} thread${threads > 1 ? "s" : ""} each`,
    facilities: here, threads, wasHidden: hidden, heats: Object.fromEntries(heats), heat: curve,
  };
}

function browserName() {
  const agent = navigator.userAgent;
  const [, name, release] = /(Firefox|Edg|Chrome)\/(\d+)/.exec(agent) ?? /(Version)\/([\d.]+)/.exec(agent) ?? ["", "Browser", ""];
  const system = /Android|iPhone|iPad|Windows|Mac OS X|CrOS|Linux/.exec(agent)?.[0] ?? "";
  return `${{ Version: "Safari", Edg: "Edge" }[name] ?? name} ${release} on ${system || "an unknown system"}`;
}

async function start() {
  stopped = false;
  hidden = document.hidden;
  $("go").hidden = true;
  $("stop").hidden = false;
  $("stop").focus();
  const sleep = keepAwake();
  let curve;
  try {
    await runHeat("write", site.model);
    if (!stopped && site.encoder.model) await runHeat("encode", site.encoder.model);
    if (!stopped) curve = await heatUp();
  } catch (error) {
    $("problem").textContent = plain(error);
    $("problem").hidden = false;
  }
  sleep();
  progress();
  for (const engine of running.values()) engine.close();
  running.clear();
  const focused = document.activeElement === $("stop");
  $("stop").hidden = true;
  say(`${stopped ? "Stopped." : "Done."}${hidden ? " The tab was in the background for a while, so figures may be too low." : ""}`);
  share(() => results(curve?.()));
  $("go").textContent = "Race again";
  $("go").hidden = false;
  if (focused) $("go").focus();
  $("go").addEventListener("click", () => location.reload());
  $("plan").textContent = "";
}

// ---- the page -------------------------------------------------------------------------------------

$("unstarted").hidden = true;
self.addEventListener("error", ({ message }) => say(`The page has failed (${message}). Reload it.`));
document.addEventListener("visibilitychange", () => { hidden ||= document.hidden; });
$("stop").addEventListener("click", () => {
  stopped = true;
  say("Stopping after this turn …");
});
$("go").addEventListener("click", start, { once: true });
$("how-prompt").textContent = String(PROMPT.split(" ").length);
$("how-count").textContent = String(COUNT);
await isolate();
try {
  const answer = await fetch("../site.json");
  if (!answer.ok) throw new Error(`site.json: the server answered ${answer.status}`);
  site = await answer.json();
  $("version").textContent = site.version;
  HEATS.write.model = site.model.split("/").pop();
  lineUp("write");
  about("write");
  if (site.encoder.model) {
    lineUp("encode");
    about("encode");
    $("encode").hidden = false;
  }
  showLent();
  $("go").disabled = false;
} catch (error) {
  $("problem").textContent = plain(error);
  $("problem").hidden = false;
}
