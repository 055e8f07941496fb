// clang-format off: this file is aligned by hand
/* What an instruction set says of itself. A folder isa/<name>/ has a caps.h with
 *
 *   - the numbers of the list below, as enumerators of these names. A number that only the machine
 *     knows is a macro, an expression. `hb_describe` tells Python all of them;
 *   - PRODUCT_TILES, a list of TILES(parts, rows): the tiles of float products (linear/panels.inc)
 *     by how many registers of columns are left, which go with so many rows;
 *   - UNROLL_CODED, UNROLL or nothing: whether CODED_ROWS sums are in registers;
 *   - files, where bodies differ by more than numbers:
 *       PACKED_TILES_FILE     linear/tiles_body.inc, or wide_body.inc where registers hold sixteen
 *                             rows
 *       OPENED_PRODUCTS_FILE  linear/opened.inc, or not_opened.inc
 *       CODES_TILES_FILE      conv/codes_tiles.inc, or codes_wide.inc where numbers of sixteen bits
 *                             are multiplied
 *       DEPTHWISE_CODES_FILE  conv/depthwise_pairs.inc, for the same, or depthwise_alone.inc
 *
 * No body asks for an instruction set in any other way. This file is included with CAPABILITY
 * defined. */

/* ---- kinds of products ---- */

CAPABILITY(REGISTER_LANES)    /* floats in a register */
CAPABILITY(BYTE_PRODUCTS)     /* whether an instruction multiplies bytes and sums up four products */
CAPABILITY(OPENED_FASTER)     /* whether products of codes that were opened are faster than those of
                                 bytes, and so ops.matmul_widened than ops.matmul_rotated */
CAPABILITY(FETCH_STREAMS)     /* whether what comes next is worth a prefetch */

/* ---- integer products on packed rows: linear/packed.inc ---- */

CAPABILITY(PARTS)             /* that sixteen rows fall into: each fills a register */
CAPABILITY(TILE_PARTS)        /* of a tile, side by side, with */
CAPABILITY(COLUMNS)           /* so many rows of activations, of which */
CAPABILITY(TOGETHER)          /* so many take one step */
CAPABILITY(ROW_PARTS)         /* parts that take one step where there is one row of activations */
CAPABILITY(Q8_0_OFFSET)       /* what Q8_0's codes are too high by when they are multiplied: some
                                 instructions take them without a sign */
CAPABILITY(OPENED_SPAN)       /* columns that are opened at a time */
CAPABILITY(OPENED_ALONE)      /* whether tiles of codes that are not opened are never better */
CAPABILITY(PEAK)              /* sums side by side in the benchmark's products (linear/peak.inc) */

/* ---- float products: linear/panels.inc, linear/float.inc ---- */

CAPABILITY(PRODUCT_PARTS)     /* registers of columns of the widest tile */
CAPABILITY(ROW_PRODUCT)       /* the same where there is a single row */
CAPABILITY(PRODUCT_ENDS)      /* whether rows that are left go by eights, fours and twos */
CAPABILITY(TILE_ROWS)         /* rows of weights of a tile, with */
CAPABILITY(TILE_COLUMNS)      /* so many of activations */
CAPABILITY(OTHER_TILES)       /* whether single tokens have tiles too, and formats rarer than F16 */

/* ---- attention ---- */

CAPABILITY(SIDE_BY_SIDE)      /* sums of sixteen lanes that go on side by side for each query */
CAPABILITY(EXPONENTIALS)      /* vectors of exponentials side by side */
CAPABILITY(CODED_ROWS)        /* rows of a tile of attention's codes */

/* ---- images: conv/ ---- */

CAPABILITY(CONV_PIXELS)       /* pixels of a tile, with */
CAPABILITY(CONV_BLOCKS)       /* so many sixteens of channels; */
CAPABILITY(CONV_DEPTH)        /* numbers of a window that are multiplied before the next ones */
CAPABILITY(DEPTHWISE_PIXELS)  /* neighbours whose sums are made together */
CAPABILITY(MANY_TILES)        /* whether there are tiles for rarer windows, and smaller ones */
CAPABILITY(CODES_PIXELS)      /* the first three for codes of eight bits, */
CAPABILITY(CODES_BLOCKS)
CAPABILITY(CODES_DEPTH)       /* in bytes */
CAPABILITY(QUAD)              /* bytes that four codes of a pixel take in a strip: 4, or 8 as numbers
                                 of sixteen bits, the first and the third before the others */
CAPABILITY(QUAD_FLIP)         /* what is turned over in them: 128 where bytes have a sign */

// clang-format on
