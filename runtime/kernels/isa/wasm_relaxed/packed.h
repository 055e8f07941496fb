/* WebAssembly's SIMD with two relaxed instructions. The dot product's second operand is Q4_0's
 * codes, 0 ... 15, or magnitudes of activations, 0 ... 127: they fit its seven bits, so its result
 * is the same on every engine. The fused multiply-add serves the float products alone, which may
 * fuse. */
#define HB_WASM_RELAXED
#include "isa/wasm/packed.h"
