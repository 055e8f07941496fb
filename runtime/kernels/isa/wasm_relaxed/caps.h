/* WebAssembly's SIMD128 with relaxed SIMD instructions. The constants are described in isa/caps.h.
 */
#ifndef HALFBYTE_ISA_WASM_RELAXED_CAPS_H
#define HALFBYTE_ISA_WASM_RELAXED_CAPS_H

#include "isa/shared/wasm_caps.h"

#define CODES_ROWS_FILE "linear/codes_rows.inc"

enum { BYTE_PRODUCTS = 1, UNPACKED_ONLY = 0 };
/* only the engine knows: packed.h */
#define UNPACKED_FASTER is_composed()
#define COMPOSED is_composed()

#endif
