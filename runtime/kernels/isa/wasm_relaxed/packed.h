/* WebAssembly's SIMD with relaxed instructions. The second operand of the dot product is quantized
 * values, or magnitudes of activations, of 0...127, which fit into its seven bits; indices into
 * tables are below sixteen: so the result is the same on every engine. The fused multiply-add is
 * used only for float products, which may fuse. */
#define HB_WASM_RELAXED
#include "isa/wasm/packed.h"
