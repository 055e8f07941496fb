// Sounds: their samples, from a file or from the microphone.
import { megabytes } from "./show.mjs";

export const RATE = 16_000;  // samples per second
export const RECORDED = 4;  // seconds
export const LONGEST = 120;  // seconds that models are given of a sound
const MOST = 1 << 27;  // bytes of a file: what is in it takes several times as much memory

// Samples of a file's sound in one channel, from -1 to 1, at most LONGEST; and its `seconds`.
export async function samplesOf(file, rate = RATE) {
  if (file.size > MOST) throw new Error(`${file.name}: ${megabytes(file.size)}: expected at most ${megabytes(MOST)}`);
  let sound;
  try {
    sound = await new OfflineAudioContext(1, 1, rate).decodeAudioData(await file.arrayBuffer());
  } catch {
    throw new Error(`${file.name}: not a sound that this browser can read`);
  }
  const samples = new Float32Array(Math.min(sound.length, LONGEST * rate));
  for (let channel = 0; channel < sound.numberOfChannels; channel += 1) {
    const heard = sound.getChannelData(channel);
    for (let i = 0; i < samples.length; i += 1) samples[i] += heard[i] / sound.numberOfChannels;
  }
  return { samples, seconds: sound.duration };
}

// How long a sound is, and how much of it a model is given.
export const spanOf = ({ seconds }) => `${seconds > LONGEST ? `the first ${LONGEST} of ` : ""}${seconds.toFixed(1)} s`;

// A browser's filters are made for calls: noise suppression fades a word that comes again.
const MICROPHONE = { echoCancellation: false, noiseSuppression: false };

// What the microphone hears in RECORDED seconds from its first sound, as a file. A microphone may
// need seconds to start, in which a recorder records nothing.
export async function record() {
  if (!navigator.mediaDevices) throw new Error("browsers give it only to pages from https or localhost");
  const stream = await navigator.mediaDevices.getUserMedia({ audio: MICROPHONE });
  const recorder = new MediaRecorder(stream);
  const pieces = [];
  let end;
  recorder.addEventListener("dataavailable", ({ data }) => {
    pieces.push(data);
    if (data.size) end ??= setTimeout(() => recorder.stop(), 1000 * RECORDED);
  });
  const ended = new Promise((resolve) => { recorder.addEventListener("stop", resolve); });
  recorder.start(50);  // milliseconds of each piece
  await ended;
  clearTimeout(end);  // where the microphone was taken away
  for (const track of stream.getTracks()) track.stop();
  return new File(pieces, "the recording");
}
