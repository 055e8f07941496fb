/* What AVX2 and its extension AVX-VNNI have in common: sixteen registers of 256 bits. The constants
 * are described in isa/caps.h. */
#ifndef HALFBYTE_ISA_SHARED_AVX2_CAPS_H
#define HALFBYTE_ISA_SHARED_AVX2_CAPS_H

/* kinds of products */
enum { REGISTER_LANES = 8, FETCH_STREAMS = 2 };
#define PACKED_TILES_FILE "linear/tiles_body.inc"
#define CODES_ROWS_FILE "linear/codes_rows_scaled.inc"
#define UNROLL_BLOCKS

/* integer products on packed rows */
enum {
  PARTS = 2,
  TILE_PARTS = 1,
  ROW_PARTS = 1,
  CODES_PARTS = 2,
  COLUMNS = 4,
  TOGETHER = 1,
  PEAK = 8
};

/* float products */
enum { PRODUCT_PARTS = 2, ROW_PRODUCT = 8, PRODUCT_ENDS = 1 };
#define PRODUCT_TILES TILES(2, 6)
#define FLOAT_TILES_FILE "linear/float_halves_body.inc"
enum { TILE_ROWS = 3, TILE_COLUMNS = 4, HALF_STEPS = 512, OTHER_TILES = 1 };

/* attention */
enum { SIDE_BY_SIDE = 1, EXPONENTIALS = 2, INT8_ROWS = 4 };
#define UNROLL_INT8 UNROLL

/* images */
enum { CONV_PIXELS = 6, CONV_BLOCKS = 1, CONV_DEPTH = 768, DEPTHWISE_PIXELS = 4, MANY_TILES = 1 };
enum { QUANTIZED_PIXELS = 4, QUANTIZED_BLOCKS = 1, QUAD_FLIP = 0 };

#endif
