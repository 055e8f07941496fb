/* AVX-512 with VNNI: thirty-two registers of 512 bits. The constants are described in isa/caps.h.
 */
#ifndef HALFBYTE_ISA_AVX512VNNI_CAPS_H
#define HALFBYTE_ISA_AVX512VNNI_CAPS_H

/* kinds of products */
enum {
  REGISTER_LANES = 16,
  BYTE_PRODUCTS = 1,
  UNPACKED_FASTER = 0,
  FETCH_STREAMS = 2,
  FETCH_AHEAD = 0
};
#define PACKED_TILES_FILE "linear/wide_body.inc"
#define CODES_ROWS_FILE "linear/codes_rows_whole.inc"
#define UNROLL_BLOCKS UNROLL
#define UNPACKED_PRODUCTS_FILE "linear/not_unpacked.inc"
#define QUANTIZED_TILES_FILE "conv/quantized_tiles.inc"
#define DEPTHWISE_QUANTIZED_FILE "conv/depthwise_no_pairs.inc"

/* integer products on packed rows */
enum {
  PARTS = 1,
  TILE_PARTS = 1,
  ROW_PARTS = 1,
  CODES_PARTS = 1,
  COLUMNS = 16,
  TOGETHER = 2,
  Q8_0_OFFSET = 128,
  UNPACKED_SPAN = 0,
  UNPACKED_ONLY = 0,
  PEAK = 8
};

/* float products */
enum { PRODUCT_PARTS = 4, ROW_PRODUCT = 4, PRODUCT_ENDS = 1 };
#define PRODUCT_TILES TILES(4, 6) TILES(3, 8) TILES(2, 12) TILES(1, 12)
#define FLOAT_TILES_FILE "linear/float_tiles_body.inc"
enum { TILE_ROWS = 4, TILE_COLUMNS = 6, OTHER_TILES = 1 };

/* attention */
enum { SIDE_BY_SIDE = 2, EXPONENTIALS = 8, INT8_ROWS = 8 };
#define UNROLL_INT8 UNROLL

/* images */
enum { CONV_PIXELS = 14, CONV_BLOCKS = 2, CONV_DEPTH = 1152, DEPTHWISE_PIXELS = 7, MANY_TILES = 1 };
enum {
  QUANTIZED_PIXELS = 14,
  QUANTIZED_BLOCKS = 2,
  QUANTIZED_DEPTH = 2304,
  QUAD = 4,
  QUAD_FLIP = 0
};

#endif
