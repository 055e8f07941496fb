/* What the instruction sets of WebAssembly have in common: engines use fifteen registers of 128
 * bits. The constants are described in isa/caps.h. */
#ifndef HALFBYTE_ISA_SHARED_WASM_CAPS_H
#define HALFBYTE_ISA_SHARED_WASM_CAPS_H

/* kinds of products */
enum { REGISTER_LANES = 4, FETCH_STREAMS = 0, FETCH_AHEAD = 0 };
#define PACKED_TILES_FILE "linear/tiles_body.inc"
#define UNPACKED_PRODUCTS_FILE "linear/unpacked.inc"
#define QUANTIZED_TILES_FILE "conv/quantized_tiles.inc"
#define DEPTHWISE_QUANTIZED_FILE "conv/depthwise_no_pairs.inc"

/* integer products on packed rows */
enum {
  PARTS = 4,
  TILE_PARTS = 2,
  ROW_PARTS = 4,
  CODES_PARTS = 1,
  COLUMNS = 4,
  TOGETHER = 4,
  Q8_0_OFFSET = 0,
  UNPACKED_SPAN = 512,
  PEAK = 1
};

/* float products */
enum { PRODUCT_PARTS = 2, ROW_PRODUCT = 4, PRODUCT_ENDS = 0 };
#define PRODUCT_TILES TILES(2, 4)
#define FLOAT_TILES_FILE "linear/float_tiles_body.inc"
enum { TILE_ROWS = 2, TILE_COLUMNS = 2, OTHER_TILES = 0 };

/* attention */
enum { SIDE_BY_SIDE = 1, EXPONENTIALS = 1, INT8_ROWS = 4 };
#define UNROLL_INT8

/* images */
enum { CONV_PIXELS = 4, CONV_BLOCKS = 1, CONV_DEPTH = 64, DEPTHWISE_PIXELS = 2, MANY_TILES = 0 };
enum {
  QUANTIZED_PIXELS = 2,
  QUANTIZED_BLOCKS = 1,
  QUANTIZED_DEPTH = 1024,
  QUAD = 8,
  QUAD_FLIP = 0
};

#endif
