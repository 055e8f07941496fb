// What this browser lends to WebAssembly here, and what each engine makes of it.
import { hasRelaxedSimd, hasSimd } from "../simd.mjs";

export function facilities() {
  return {
    isolated: Boolean(self.crossOriginIsolated),
    threads: Boolean(self.crossOriginIsolated) && typeof SharedArrayBuffer !== "undefined",
    simd: hasSimd(),
    relaxed: hasRelaxedSimd(),
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
