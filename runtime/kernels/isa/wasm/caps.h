/* WebAssembly's SIMD128. The constants are described in isa/caps.h. */
#ifndef HALFBYTE_ISA_WASM_CAPS_H
#define HALFBYTE_ISA_WASM_CAPS_H

#include "isa/shared/wasm_caps.h"

#define CODES_ROWS_FILE "linear/no_codes_rows.inc"

enum { BYTE_PRODUCTS = 0, UNPACKED_FASTER = 1, UNPACKED_ONLY = 1 };

#endif
