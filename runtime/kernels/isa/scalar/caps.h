/* One number at a time. The constants are described in isa/caps.h. */
#ifndef HALFBYTE_ISA_SCALAR_CAPS_H
#define HALFBYTE_ISA_SCALAR_CAPS_H

/* kinds of products */
enum {
  REGISTER_LANES = 1,
  BYTE_PRODUCTS = 0,
  UNPACKED_FASTER = 0,
  FETCH_STREAMS = 1,
  FETCH_AHEAD = 0
};
#define PACKED_TILES_FILE "linear/tiles_body.inc"
#define CODES_ROWS_FILE "linear/no_codes_rows.inc"
#define UNPACKED_PRODUCTS_FILE "linear/not_unpacked.inc"
#define QUANTIZED_TILES_FILE "conv/quantized_tiles.inc"
#define DEPTHWISE_QUANTIZED_FILE "conv/depthwise_no_pairs.inc"

/* integer products on packed rows */
enum {
  PARTS = 1,
  TILE_PARTS = 1,
  ROW_PARTS = 1,
  CODES_PARTS = 1,
  COLUMNS = 1,
  TOGETHER = 1,
  Q8_0_OFFSET = 0,
  UNPACKED_SPAN = 0,
  UNPACKED_ONLY = 0,
  PEAK = 8
};

/* float products */
enum { PRODUCT_PARTS = 1, ROW_PRODUCT = 1, PRODUCT_ENDS = 0 };
#define PRODUCT_TILES TILES(1, 1)
#define FLOAT_TILES_FILE "linear/float_tiles_body.inc"
enum { TILE_ROWS = 1, TILE_COLUMNS = 1, OTHER_TILES = 1 };

/* attention */
enum { SIDE_BY_SIDE = 1, EXPONENTIALS = 1, INT8_ROWS = 1 };
#define UNROLL_INT8 UNROLL

/* images */
enum { CONV_PIXELS = 2, CONV_BLOCKS = 1, CONV_DEPTH = 64, DEPTHWISE_PIXELS = 2, MANY_TILES = 0 };
enum { QUANTIZED_PIXELS = 2, QUANTIZED_BLOCKS = 1, QUANTIZED_DEPTH = 512, QUAD = 4, QUAD_FLIP = 0 };

#endif
