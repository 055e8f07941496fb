// clang-format off: this file is aligned by hand
/* What an instruction set says of itself. A folder isa/<name>/ has a caps.h with
 *
 *   - the numbers of the list below, as enumerators of these names. A number that only the machine
 *     knows is a macro, an expression. Those of CAPABILITY are what `hb_describe` tells Python,
 *     those of TILING concern the bodies and nobody else: by the registers there are, they say how
 *     large tiles are and what goes side by side;
 *   - PRODUCT_TILES, a list of TILES(parts, rows): the tiles of float products (linear/panels.inc)
 *     by how many registers of columns are left, which go with so many rows;
 *   - UNROLL_INT8, UNROLL or nothing: whether INT8_ROWS sums are in registers;
 *   - files, where bodies differ by more than numbers:
 *       PACKED_TILES_FILE     linear/tiles_body.inc, or wide_body.inc where registers hold sixteen
 *                             rows
 *       UNPACKED_PRODUCTS_FILE  linear/unpacked.inc, or not_unpacked.inc
 *       QUANTIZED_TILES_FILE      conv/quantized_tiles.inc, or quantized_wide.inc where numbers of sixteen bits
 *                             are multiplied
 *       DEPTHWISE_QUANTIZED_FILE  conv/depthwise_pairs.inc, for the same, or depthwise_no_pairs.inc
 *
 * No body asks for an instruction set in any other way. This file is included with CAPABILITY
 * and TILING defined. */

/* ---- what Python knows ---- */

CAPABILITY(REGISTER_LANES)    /* floats in a register */
CAPABILITY(BYTE_PRODUCTS)     /* whether an instruction multiplies bytes and sums up four products */
CAPABILITY(UNPACKED_FASTER)     /* whether products of codes that were opened are faster than those of
                                 bytes, and so ops.matmul_widened than ops.matmul_rotated */

/* ---- integer products on packed rows: linear/packed.inc ---- */

TILING(PARTS)                 /* that sixteen rows fall into: each fills a register */
TILING(TILE_PARTS)            /* of a tile, side by side, with */
TILING(COLUMNS)               /* so many rows of activations, of which */
TILING(TOGETHER)              /* so many take one step */
TILING(ROW_PARTS)             /* parts that take one step where there is one row of activations */
TILING(Q8_0_OFFSET)           /* what Q8_0's codes are too high by when they are multiplied: some
                                 instructions take them without a sign */
TILING(UNPACKED_SPAN)           /* columns that are opened at a time */
TILING(UNPACKED_ONLY)          /* whether tiles of codes that are not opened are never better */
TILING(FETCH_STREAMS)         /* whether what comes next is worth a prefetch */
TILING(PEAK)                  /* sums side by side in the benchmark's products (linear/peak.inc) */

/* ---- float products: linear/panels.inc, linear/float.inc ---- */

TILING(PRODUCT_PARTS)         /* registers of columns of the widest tile */
TILING(ROW_PRODUCT)           /* the same where there is a single row */
TILING(PRODUCT_ENDS)          /* whether rows that are left go by eights, fours and twos */
TILING(TILE_ROWS)             /* rows of weights of a tile, with */
TILING(TILE_COLUMNS)          /* so many of activations */
TILING(OTHER_TILES)           /* whether single tokens have tiles too, and formats rarer than F16 */

/* ---- attention ---- */

TILING(SIDE_BY_SIDE)          /* sums of sixteen lanes that go on side by side for each query */
TILING(EXPONENTIALS)          /* vectors of exponentials side by side */
TILING(INT8_ROWS)            /* rows of a tile of attention's codes */

/* ---- images: conv/ ---- */

TILING(CONV_PIXELS)           /* pixels of a tile, with */
TILING(CONV_BLOCKS)           /* so many sixteens of channels; */
TILING(CONV_DEPTH)            /* numbers of a window that are multiplied before the next ones */
TILING(DEPTHWISE_PIXELS)      /* neighbours whose sums are made together */
TILING(MANY_TILES)            /* whether there are tiles for rarer windows, and smaller ones */
TILING(QUANTIZED_PIXELS)          /* the first three for codes of eight bits, */
TILING(QUANTIZED_BLOCKS)
TILING(QUANTIZED_DEPTH)           /* in bytes */
TILING(QUAD)                  /* bytes that four codes of a pixel take in a strip: 4, or 8 as numbers
                                 of sixteen bits, the first and the third before the others */
TILING(QUAD_FLIP)             /* what is turned over in them: 128 where bytes have a sign */

// clang-format on
