/* AVX2 with FMA and F16C. The constants are described in isa/caps.h. */
#ifndef HALFBYTE_ISA_AVX2_CAPS_H
#define HALFBYTE_ISA_AVX2_CAPS_H

#include "isa/shared/avx2_caps.h"

/* Bytes are widened to 16 bits before they are multiplied. */
enum { BYTE_PRODUCTS = 0, UNPACKED_FASTER = 1, FETCH_AHEAD = 3072 };
#define UNPACKED_PRODUCTS_FILE "linear/unpacked.inc"
#define QUANTIZED_TILES_FILE "conv/quantized_wide.inc"
#define DEPTHWISE_QUANTIZED_FILE "conv/depthwise_pairs.inc"

enum { Q8_0_OFFSET = 0, UNPACKED_SPAN = 512, UNPACKED_ONLY = 1 };
enum { QUANTIZED_DEPTH = 512, QUAD = 8 };

#endif
