// The rules of the race, without a page: who runs when, and what counts.
export const ROUNDS = 5;
export const TURN = 0.6;  // seconds: an engine that is faster repeats its work until then
export const BUDGET = 90;  // seconds of a heat, after which no round begins, if there were two

export function quantile(values, q) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * q, low = Math.floor(at);
  return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}

// The median of turns, with the lowest and the highest.
export const summary = (values) => values.length
  ? { median: quantile(values, 0.5), low: Math.min(...values), high: Math.max(...values) }
  : undefined;

// Each round begins with another engine, so that none is always the one after the hottest.
export const rotated = (lanes, round) => lanes.map((_, i) => lanes[(i + round) % lanes.length]);

// Runs all lanes in turn. A lane has `turn(counts)`, which runs the engine once and shows it, and
// `fail(error)`; one that fails is left out from then on. Round 0 warms up and does not count.
export async function race(lanes, { now, stopped = () => false, round: begin = () => {} }) {
  let running = [...lanes];
  const start = now();
  for (let round = 0; round <= ROUNDS; round++) {
    if (round > 2 && (now() - start) / 1000 > BUDGET) break;
    begin(round);
    for (const lane of rotated(running, round)) {
      if (stopped()) return running;
      try {
        await lane.turn(round > 0);
      } catch (error) {
        running = running.filter((other) => other !== lane);
        lane.fail(error);
      }
    }
  }
  return running;
}

// Repeats a run until a turn is long enough, and gives work per second. `measure` gives [work, seconds].
export async function turn(measure) {
  let work = 0, seconds = 0;
  do {
    const [more, taken] = await measure();
    if (!(taken > 0)) throw new Error("it wrote nothing");
    [work, seconds] = [work + more, seconds + taken];
  } while (seconds < TURN);
  return work / seconds;
}

// The device whose predicted speed is nearest, as a ratio; or the one that the browser names.
export function nearest(devices, speed, model = "") {
  const named = model && devices.find(({ title }) => title.toLowerCase().includes(model.toLowerCase()));
  const far = (device) => Math.abs(Math.log(device.speed / speed));
  return named || devices.reduce((best, device) => (far(device) < far(best) ? device : best));
}

export const factor = (value) => (value >= 9.95 ? value.toFixed(0) : value.toFixed(value >= 2 ? 1 : 2));
export const figure = (value) => (value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3));

// Who was how much faster than the next, in a sentence; "" with fewer than two.
export function verdict(results) {
  const ordered = results.filter(({ median }) => median).sort((a, b) => b.median - a.median);
  if (ordered.length < 2) return "";
  const [first, second] = ordered;
  const ratio = first.median / second.median;
  if (ratio < 1.02) return `${first.title} and ${second.title} are equally fast here.`;
  return `${first.title} is ${factor(ratio)} times as fast as ${second.title}, the next.`;
}

// Whether a lane's result is the same as the first lane's: how far texts agree, or vectors' cosine.
export function agreement(reference, own) {
  if (typeof own === "string") {
    if (own === reference) return "the same text";
    let same = 0;
    while (same < own.length && own[same] === reference[same]) same++;
    return `another text after ${same} characters`;
  }
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const cosine = dot(reference, own) / Math.sqrt(dot(reference, reference) * dot(own, own));
  return `cosine ${cosine.toFixed(4)}`;
}

// Mean of `samples` [{at, speed}] between two times in seconds; undefined if there are none.
export function mean(samples, from, to) {
  const some = samples.filter(({ at }) => at > from && at <= to);
  return some.length ? some.reduce((sum, { speed }) => sum + speed, 0) / some.length : undefined;
}
