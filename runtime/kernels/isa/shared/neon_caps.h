/* What the instruction sets based on NEON have in common. The constants are described in
 * isa/caps.h. */
#ifndef HALFBYTE_ISA_SHARED_NEON_CAPS_H
#define HALFBYTE_ISA_SHARED_NEON_CAPS_H

/* kinds of products */
enum { REGISTER_LANES = 4, UNPACKED_FASTER = 0, FETCH_STREAMS = 1, FETCH_AHEAD = 0 };
#define PACKED_TILES_FILE "linear/tiles_body.inc"
#define CODES_ROWS_FILE "linear/codes_rows.inc"
#define UNPACKED_PRODUCTS_FILE "linear/not_unpacked.inc"
#define QUANTIZED_TILES_FILE "conv/quantized_tiles.inc"
#define DEPTHWISE_QUANTIZED_FILE "conv/depthwise_no_pairs.inc"

/* integer products on packed rows */
enum {
  PARTS = 4,
  TILE_PARTS = 1,
  ROW_PARTS = 1,
  CODES_PARTS = 4,
  COLUMNS = 8,
  TOGETHER = 2,
  Q8_0_OFFSET = 0,
  UNPACKED_SPAN = 0,
  UNPACKED_ONLY = 0,
  PEAK = 8
};

/* float products */
enum { PRODUCT_PARTS = 4, ROW_PRODUCT = 8, PRODUCT_ENDS = 1 };
#define PRODUCT_TILES TILES(4, 6)
#define FLOAT_TILES_FILE "linear/float_tiles_body.inc"
enum { TILE_ROWS = 2, TILE_COLUMNS = 2, OTHER_TILES = 1 };

/* attention */
enum { SIDE_BY_SIDE = 1, EXPONENTIALS = 1, INT8_ROWS = 4 };
#define UNROLL_INT8 UNROLL

/* images */
enum { CONV_PIXELS = 6, CONV_BLOCKS = 1, CONV_DEPTH = 128, DEPTHWISE_PIXELS = 4, MANY_TILES = 1 };
enum {
  QUANTIZED_PIXELS = 4,
  QUANTIZED_BLOCKS = 1,
  QUANTIZED_DEPTH = 1024,
  QUAD = 4,
  QUAD_FLIP = 128
};

#endif
