// What SIMD this browser's WebAssembly has.
const valid = (...body) => WebAssembly.validate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, ...body]));

// One function each: i32.const 0, i8x16.splat, (twice more for relaxed_madd,) drop
const SIMD = [1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 10, 9, 1, 7, 0, 65, 0, 253, 15, 26, 11];
const RELAXED = [1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 10, 20, 1, 18, 0, 65, 0, 253, 15, 65, 0, 253, 15, 65, 0, 253, 15, 253, 133, 2, 26, 11];

export const hasSimd = () => valid(...SIMD);
export const hasRelaxedSimd = () => valid(...RELAXED);
