// clang-format off: this file is aligned by hand
/* What an instruction set says about itself. Each folder isa/<name>/ has a caps.h with
 *
 *   - the constants listed below, as enumerators of these names, or as macros where only the
 *     machine knows the value. CAPABILITY marks those that `hb_describe` tells Python; TILING marks
 *     those that only the bodies use: they set the sizes of tiles by the number of registers;
 *   - PRODUCT_TILES, a list of TILES(parts, rows): the tiles of float products (linear/panels.inc),
 *     the rows of a tile by the number of registers for its columns;
 *   - UNROLL_INT8, UNROLL or nothing: whether INT8_ROWS sums fit into registers;
 *   - UNROLL_BLOCKS, the same for the blocks of a span, of linear/codes_rows_scaled.inc;
 *   - files, where bodies differ by more than numbers:
 *       PACKED_TILES_FILE         linear/tiles_body.inc, or wide_body.inc if a register holds
 *                                 sixteen rows
 *       FLOAT_TILES_FILE          linear/float_tiles_body.inc, or float_halves_body.inc if a
 *                                 register holds eight numbers
 *       UNPACKED_PRODUCTS_FILE    linear/unpacked.inc, or not_unpacked.inc
 *       CODES_ROWS_FILE           linear/codes_rows.inc, codes_rows_scaled.inc or _whole.inc by the
 *                                 rows in a register, or no_codes_rows.inc
 *       QUANTIZED_TILES_FILE      conv/quantized_tiles.inc, or quantized_wide.inc if 16-bit
 *                                 integers are multiplied
 *       DEPTHWISE_QUANTIZED_FILE  conv/depthwise_pairs.inc for the same case, or
 *                                 depthwise_no_pairs.inc
 *
 * Bodies depend on the instruction set in no other way. This file is included with CAPABILITY and
 * TILING defined. */

/* ---- read by Python ---- */

CAPABILITY(REGISTER_LANES)   /* floats in a register */
CAPABILITY(BYTE_PRODUCTS)    /* whether one instruction multiplies bytes and adds four products */
CAPABILITY(UNPACKED_FASTER)  /* whether unpacked integers are multiplied faster than bytes, and
                                therefore ops.matmul_widened is faster than ops.matmul_rotated */

/* ---- integer products on packed rows: linear/packed.inc ---- */

TILING(PARTS)                /* into which sixteen rows are divided; each fills a register */
TILING(TILE_PARTS)           /* parts in a tile, with */
TILING(COLUMNS)              /* so many rows of activations, of which */
TILING(TOGETHER)             /* so many are multiplied in one step */
TILING(ROW_PARTS)            /* parts in one step if there is a single row of activations */
TILING(CODES_PARTS)          /* the same for codes: linear/codes_rows_body.inc */
TILING(Q8_0_OFFSET)          /* offset that is added to Q8_0's values before they are multiplied:
                                some instructions take unsigned bytes */
TILING(UNPACKED_SPAN)        /* columns that are unpacked at a time */
TILING(UNPACKED_ONLY)        /* whether unpacked tiles are always the better ones */
TILING(FETCH_STREAMS)        /* whether prefetching the next data is worth it; 2: unless it is in
                                a single stream */
TILING(FETCH_AHEAD)          /* bytes by which a single stream is prefetched; 0: hardware does so */
TILING(PEAK)                 /* independent sums in the benchmark's products (linear/peak.inc) */

/* ---- float products: linear/panels.inc, linear/float.inc ---- */

TILING(PRODUCT_PARTS)        /* registers for columns in the widest tile */
TILING(ROW_PRODUCT)          /* the same for a single row */
TILING(PRODUCT_ENDS)         /* whether remaining rows are done in eights, fours and twos */
TILING(TILE_ROWS)            /* rows of weights in a tile, with */
TILING(TILE_COLUMNS)         /* so many rows of activations */
TILING(OTHER_TILES)          /* whether single tokens have tiles too, and formats less common than
                                F16 */

/* ---- attention ---- */

TILING(SIDE_BY_SIDE)         /* independent sums of sixteen lanes for each query */
TILING(EXPONENTIALS)         /* vectors of exponentials that are computed together */
TILING(INT8_ROWS)            /* rows in a tile of int8 attention */

/* ---- images: conv/ ---- */

TILING(CONV_PIXELS)          /* pixels in a tile, with */
TILING(CONV_BLOCKS)          /* so many blocks of sixteen channels; */
TILING(CONV_DEPTH)           /* numbers of a window that are multiplied before the next ones */
TILING(DEPTHWISE_PIXELS)     /* neighbouring pixels that are computed together */
TILING(MANY_TILES)           /* whether there are tiles for less common windows, and smaller ones */
TILING(QUANTIZED_PIXELS)     /* the first three for 8-bit quantized images, */
TILING(QUANTIZED_BLOCKS)
TILING(QUANTIZED_DEPTH)      /* in bytes */
TILING(QUAD)                 /* bytes that four values of a pixel take in a strip: 4, or 8 as 16-bit
                                integers, the first and the third before the others */
TILING(QUAD_FLIP)            /* bits that are inverted in them: 128 if bytes are signed */

// clang-format on
