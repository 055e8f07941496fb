/* The compiler's own vectors, whatever instructions it has for them. The constants are described in
 * isa/caps.h. */
#ifndef HALFBYTE_ISA_VECTORS_CAPS_H
#define HALFBYTE_ISA_VECTORS_CAPS_H

/* kinds of products */
enum {
  REGISTER_LANES = 16,
  BYTE_PRODUCTS = 1,
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
  COLUMNS = 8,
  TOGETHER = 4,
  Q8_0_OFFSET = 0,
  UNPACKED_SPAN = 0,
  UNPACKED_ONLY = 0,
  PEAK = 4
};

/* float products */
enum { PRODUCT_PARTS = 2, ROW_PRODUCT = 4, PRODUCT_ENDS = 1 };
#define PRODUCT_TILES TILES(2, 3) TILES(1, 6)
enum { TILE_ROWS = 2, TILE_COLUMNS = 3, OTHER_TILES = 1 };

/* attention */
enum { SIDE_BY_SIDE = 1, EXPONENTIALS = 4, INT8_ROWS = 2 };
#define UNROLL_INT8 UNROLL

/* images */
enum { CONV_PIXELS = 5, CONV_BLOCKS = 2, CONV_DEPTH = 96, DEPTHWISE_PIXELS = 3, MANY_TILES = 1 };
enum { QUANTIZED_PIXELS = 3, QUANTIZED_BLOCKS = 2, QUANTIZED_DEPTH = 768, QUAD = 4, QUAD_FLIP = 0 };

#endif
