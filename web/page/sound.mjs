// Sounds: their samples, from a file or from the microphone.
export const RATE = 16_000;  // samples per second
export const RECORDED = 4;  // seconds

// Samples of a sound in one channel, from -1 to 1.
export async function samplesOf(data, name, rate = RATE) {
  let sound;
  try {
    sound = await new OfflineAudioContext(1, 1, rate).decodeAudioData(data);
  } catch {
    throw new Error(`${name}: not a sound that this browser can read`);
  }
  const samples = new Float32Array(sound.length);
  for (let channel = 0; channel < sound.numberOfChannels; channel += 1) {
    sound.getChannelData(channel).forEach((value, i) => { samples[i] += value / sound.numberOfChannels; });
  }
  return samples;
}

// A browser's filters are made for calls: noise suppression fades a word that comes again.
const MICROPHONE = { echoCancellation: false, noiseSuppression: false };

// What the microphone hears in RECORDED seconds from its first sound, as a file's bytes. A
// microphone may need seconds to start, in which a recorder records nothing.
export async function record() {
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
  return new Blob(pieces).arrayBuffer();
}
