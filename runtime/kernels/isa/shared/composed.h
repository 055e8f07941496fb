/* Products of a single row of activations on processors that lack the instruction for all others:
 * only the engine of WebAssembly knows, and isa/wasm_relaxed has them. */
#ifndef COMPOSED
enum { COMPOSED = 0 };
#define composed_row_q4_0(dots, w, parts, x, start)
#define composed_row_q8_0(dots, w, parts, x, start)
#define composed_row_5(dots, w, parts, x, start)
#define composed_row_half(dots, w, parts, half, x, start)
#endif
