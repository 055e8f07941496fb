/* AVX2 with AVX-VNNI. The constants are described in isa/caps.h. */
#ifndef HALFBYTE_ISA_AVXVNNI_CAPS_H
#define HALFBYTE_ISA_AVXVNNI_CAPS_H

#include "isa/shared/avx2_caps.h"

enum { BYTE_PRODUCTS = 1, UNPACKED_FASTER = 0, FETCH_AHEAD = 0 };
#define UNPACKED_PRODUCTS_FILE "linear/not_unpacked.inc"
#define QUANTIZED_TILES_FILE "conv/quantized_tiles.inc"
#define DEPTHWISE_QUANTIZED_FILE "conv/depthwise_no_pairs.inc"

enum { Q8_0_OFFSET = 128, UNPACKED_SPAN = 0, UNPACKED_ONLY = 0 };
enum { QUANTIZED_DEPTH = 1024, QUAD = 4 };

#endif
