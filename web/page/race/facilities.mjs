// What this browser lends to WebAssembly here, and what each engine makes of it.
const wasm = (...body) => WebAssembly.validate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, ...body]));

// One function each: i32.const 0, i8x16.splat, (twice more for relaxed_madd,) drop
const SIMD = [1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 10, 9, 1, 7, 0, 65, 0, 253, 15, 26, 11];
const RELAXED = [1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 10, 20, 1, 18, 0, 65, 0, 253, 15, 65, 0, 253, 15, 65, 0, 253, 15, 253, 133, 2, 26, 11];

export function facilities() {
  return {
    isolated: Boolean(self.crossOriginIsolated),
    threads: Boolean(self.crossOriginIsolated) && typeof SharedArrayBuffer !== "undefined",
    simd: wasm(...SIMD),
    relaxed: wasm(...RELAXED),
    webgpu: "gpu" in navigator,
    cores: navigator.hardwareConcurrency ?? 1,
  };
}

// Threads of every engine that may have some: half of the cores, as wllama takes, at most 4.
export const threadsFor = ({ threads, cores }) => (threads ? Math.max(1, Math.min(4, Math.floor(cores / 2))) : 1);

// Of the binaries that race: none but halfbyte's has an instruction of relaxed SIMD in it.
const CAN = {
  halfbyte: { relaxed: true, webgpu: "cannot" },
  "wllama-2": { relaxed: false, webgpu: "cannot" },
  "wllama-3": { relaxed: false, webgpu: "could" },
  "onnxruntime-web": { relaxed: false, webgpu: "could" },
  "transformers.js": { relaxed: false, webgpu: "could" },
};

// Cells of a table: what an engine has here, in words.
export function lent(name, here, threads) {
  const can = CAN[name];
  return {
    threads: here.threads ? `${threads}` : "1",
    simd: here.simd ? "yes" : "not here",
    relaxed: can.relaxed ? (here.relaxed ? "yes" : "not here") : "not used",
    webgpu: can.webgpu === "cannot" ? "cannot" : here.webgpu ? "could, not in this race" : "not here",
  };
}
