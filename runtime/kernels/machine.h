/* Types and constants that the runner, the kernels and Python share. No libc, no allocation, no
 * globals. */
#ifndef HALFBYTE_MACHINE_H
#define HALFBYTE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

/* Unrolls a loop with few iterations over values that should stay in registers. */
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* The same where code that is not unrolled would be much slower, and may be large */
#ifdef __wasm__
#define UNROLL_FAST
#else
#define UNROLL_FAST UNROLL
#endif

/* A function that is called with constants for its sizes */
#define INLINE static inline __attribute__((always_inline))
/* Browsers download the WebAssembly file, so there code that is not time-critical is compiled for
 * size (SMALL), and code that many kernels share is not inlined (SHARED). APART keeps a function
 * whose loops need all registers separate, except in WebAssembly, where engines allocate registers
 * themselves. */
#ifdef __wasm__
#define SMALL __attribute__((minsize))
#define SHARED __attribute__((noinline)) static
#define APART static
enum { SMALL_FILE = 1 };
#else
#define SMALL
#define SHARED static inline
#define APART __attribute__((noinline)) static
enum { SMALL_FILE = 0 };
#endif

/* Whether large memory is in huge pages, as far as the system has them */
#ifdef __linux__
enum { HUGE_PAGES = 1 };
#else
enum { HUGE_PAGES = 0 };
#endif

/* Two 16-bit numbers in one of 32 bits, the first in the low half */
#define PAIR_OF(first, second) ((int)(((unsigned)(first) & 0xFFFF) | (unsigned)(second) << 16))

typedef float f32;
typedef int8_t i8;
typedef uint8_t u8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef uint16_t f16;  /* IEEE binary16, as bits */
typedef uint16_t bf16; /* upper half of an IEEE binary32 */

/* Layout: 32 weights w = d (q - 8); qs[j] holds q[j] in its low four bits and q[j + 16] in its high
 * ones. */
typedef struct {
  f16 d;
  uint8_t qs[16];
} q4_0;
_Static_assert(sizeof(q4_0) == 18, "GGUF's Q4_0 block");

/* Layout: 32 weights w = d q. */
typedef struct {
  f16 d;
  i8 qs[32];
} q8_0;
_Static_assert(sizeof(q8_0) == 34, "GGUF's Q8_0 block");

/* Layout: 32 weights w = d q + m, q as in Q4_0. */
typedef struct {
  f16 d, m;
  uint8_t qs[16];
} q4_1;
_Static_assert(sizeof(q4_1) == 20, "GGUF's Q4_1 block");

/* Layout: 32 weights w = d (q - 16); bit 4 of q[j] is bit j % 8 of qh[j / 8]. */
typedef struct {
  f16 d;
  uint8_t qh[4], qs[16];
} q5_0;
_Static_assert(sizeof(q5_0) == 22, "GGUF's Q5_0 block");

/* Layout: 32 weights w = d q + m, q as in Q5_0. */
typedef struct {
  f16 d, m;
  uint8_t qh[4], qs[16];
} q5_1;
_Static_assert(sizeof(q5_1) == 24, "GGUF's Q5_1 block");

/* Layout: 256 weights w = (d s) q - (dmin m); s and m are six bits for every 32. For j < 4, s[j]
 * and m[j] are the low six bits of scales[j] and scales[j + 4]; s[j + 4] and m[j + 4] have their
 * low four bits in scales[j + 8] and their high two at the top of scales[j] and scales[j + 4].
 * qs[32 c + j] holds q[64 c + j] in its low four bits and q[64 c + j + 32] in its high ones. */
typedef struct {
  f16 d, dmin;
  uint8_t scales[12], qs[128];
} q4_k;
_Static_assert(sizeof(q4_k) == 144, "GGUF's Q4_K block");

/* Layout: 256 weights w = (d s) q - (dmin m); s and m are the halves of a byte for every 16.
 * q[128 h + 32 p + j] is bits 2 p and 2 p + 1 of qs[32 h + j]. */
typedef struct {
  uint8_t scales[16], qs[64];
  f16 d, dmin;
} q2_k;
_Static_assert(sizeof(q2_k) == 84, "GGUF's Q2_K block");

/* Layout: 256 weights w = d (s - 32) (q - 4). The low two bits of q are as in q2_k, the third of
 * q[32 b + j] is bit b of hmask[j]. s is six bits for every 16: s[i] and s[i + 8], i < 8, have
 * their low four bits in the halves of scales[i]; the high two of s[4 p + i] are bits 2 p and
 * 2 p + 1 of scales[8 + i]. */
typedef struct {
  uint8_t hmask[32], qs[64], scales[12];
  f16 d;
} q3_k;
_Static_assert(sizeof(q3_k) == 110, "GGUF's Q3_K block");

/* Layout: as q4_k; bit 4 of q[32 b + j] is bit b of qh[j]. */
typedef struct {
  f16 d, dmin;
  uint8_t scales[12], qh[32], qs[128];
} q5_k;
_Static_assert(sizeof(q5_k) == 176, "GGUF's Q5_K block");

/* Layout: 256 weights w = (d s) (q - 32); s is a byte for every 16. The low four bits of q[128 h +
 * 32 p + j] are in ql[64 h + 32 (p % 2) + j], the low half of it if p < 2; the high two are bits 2
 * p and 2 p + 1 of qh[32 h + j]. */
typedef struct {
  uint8_t ql[128], qh[64];
  i8 scales[16];
  f16 d;
} q6_k;
_Static_assert(sizeof(q6_k) == 210, "GGUF's Q6_K block");

/* Layout: 32 weights w = d table[q], q as in Q4_0; the tables are in linear/blocks_codes.inc. */
typedef struct {
  f16 d;
  uint8_t qs[16];
} iq4_nl;
_Static_assert(sizeof(iq4_nl) == 18, "GGUF's IQ4_NL block");

/* Layout: the same; the scale is 2^(e - 128). */
typedef struct {
  uint8_t e, qs[16];
} mxfp4;
_Static_assert(sizeof(mxfp4) == 17, "GGUF's MXFP4 block");

/* Layout: 256 weights w = d (s - 32) table[q]; s is six bits for every 32: the low four of s[b] are
 * in scales_l[b / 2], the high two are bits 2 b and 2 b + 1 of scales_h. Bytes of qs from 16 b on
 * hold q[32 b] to q[32 b + 31] as in Q4_0. */
typedef struct {
  f16 d;
  uint16_t scales_h;
  uint8_t scales_l[4], qs[128];
} iq4_xs;
_Static_assert(sizeof(iq4_xs) == 136, "GGUF's IQ4_XS block");

/* Layouts that only memory has, of types whose blocks in files kernels do not read
 * (halfbyte/weights/codes.py): w = (d unit s) table[q] with s for every 16, where `kind` chooses
 * table and unit, the same in a whole matrix; w = d table[q] with d for every 16. qs is as in
 * iq4_xs, hmask and qs are as in q3_k. */
typedef struct {
  f16 d;
  uint16_t kind;
  i8 scales[16];
  uint8_t qs[128];
} codes;
typedef struct {
  f16 d;
  uint16_t kind;
  i8 scales[16];
  uint8_t hmask[32], qs[64];
} codes_3;
typedef struct {
  f16 d[2];
  uint8_t qs[16];
} fp4;

/* Layout: packed rows. Blocks of sixteen rows are stored together, one after the other: first the
 * scales of all rows, then the quantized values of four columns at a time, row by row. qs[i][r][c]
 * is byte 4 i + c of row r's block; nothing else changes. Rows after the last multiple of sixteen
 * are stored as q4_0. */
typedef struct {
  f16 d[16];
  uint8_t qs[4][16][4];
} q4_0_r16;
_Static_assert(sizeof(q4_0_r16) == 16 * sizeof(q4_0), "a permutation");

/* Layout: the same for q8_0; qs[i][r][c] is value 4 i + c of row r's block. */
typedef struct {
  f16 d[16];
  i8 qs[8][16][4];
} q8_0_r16;
_Static_assert(sizeof(q8_0_r16) == 16 * sizeof(q8_0), "a permutation");

/* Layout: quantized values of 32 columns of sixteen packed rows. Byte c of qs[i][r] holds column 4
 * i + c in its low four bits and column 16 + 4 i + c in its high ones. The fifth bit of column 4 i
 * + c is bit i of qh[r][c] (five bits); the two high bits of column 16 h + 4 i + c are bits 2 i and
 * 2 i + 1 of qh[h][r][c] (six bits). Of three bits, what would be qs[3] is distributed: bit i of
 * its halves is bits 3 and 7 of qs[i]. Of two bits, qs[2] and qs[3] are bits 2 and 3, 6 and 7 of
 * qs[0] and qs[1]. */
typedef struct {
  uint8_t qs[2][16][4];
} quantized_2;
typedef struct {
  uint8_t qs[3][16][4];
} quantized_3;
typedef struct {
  uint8_t qs[4][16][4];
} quantized_4;
typedef struct {
  uint8_t qs[4][16][4], qh[16][4];
} quantized_5;
typedef struct {
  uint8_t qs[4][16][4], qh[2][16][4];
} quantized_6;

/* Layout: packed blocks of sixteen rows with the same bits as in the file, scales first. */
typedef struct {
  f16 d[16], m[16];
  quantized_4 quantized;
} q4_1_r16;
typedef struct {
  f16 d[16];
  quantized_5 quantized;
} q5_0_r16;
typedef struct {
  f16 d[16], m[16];
  quantized_5 quantized;
} q5_1_r16;
typedef struct {
  f16 d[16], dmin[16];
  uint8_t scales[16][16];
  quantized_2 quantized[8];
} q2_k_r16;
typedef struct {
  f16 d[16];
  uint8_t scales[12][16];
  quantized_3 quantized[8];
} q3_k_r16;
typedef struct {
  f16 d[16], dmin[16];
  uint8_t scales[12][16];
  quantized_4 quantized[8];
} q4_k_r16;
typedef struct {
  f16 d[16], dmin[16];
  uint8_t scales[12][16];
  quantized_5 quantized[8];
} q5_k_r16;
typedef struct {
  f16 d[16];
  i8 scales[16][16];
  quantized_6 quantized[8];
} q6_k_r16;
typedef struct {
  f16 d[16];
  quantized_4 quantized;
} iq4_nl_r16;
typedef struct {
  uint8_t e[16];
  quantized_4 quantized;
} mxfp4_r16;
typedef struct {
  f16 d[16];
  uint16_t scales_h[16];
  uint8_t scales_l[4][16];
  quantized_4 quantized[8];
} iq4_xs_r16;
typedef struct {
  f16 d[16];
  uint16_t kind[16];
  i8 scales[16][16];
  quantized_4 quantized[8];
} codes_r16;
typedef struct {
  f16 d[16];
  uint16_t kind[16];
  i8 scales[16][16];
  quantized_3 quantized[8];
} codes_3_r16;
typedef struct {
  f16 d[2][16];
  quantized_4 quantized;
} fp4_r16;
#define SAME_SIZE(type) _Static_assert(sizeof(type##_r16) == 16 * sizeof(type), "a permutation")
SAME_SIZE(q4_1);
SAME_SIZE(q5_0);
SAME_SIZE(q5_1);
SAME_SIZE(q2_k);
SAME_SIZE(q3_k);
SAME_SIZE(q4_k);
SAME_SIZE(q5_k);
SAME_SIZE(q6_k);
SAME_SIZE(iq4_nl);
SAME_SIZE(mxfp4);
SAME_SIZE(iq4_xs);
SAME_SIZE(codes);
SAME_SIZE(codes_3);
SAME_SIZE(fp4);
#undef SAME_SIZE

/* A unit of a product with packed rows: two panels of sixteen rows, with as many rows of
 * activations as fit into a cache with them. */
enum { UNIT_ROWS = 32, UNIT_COLUMNS = 192 };
#define PACKED_UNITS(a) \
  ((((a)->m + UNIT_ROWS - 1) / UNIT_ROWS) * (((a)->n + UNIT_COLUMNS - 1) / UNIT_COLUMNS))

/* A unit of a product with matrices of experts: UNIT_ROWS rows of one. n u rows go to at most so
 * many experts. */
#define MAX_EXPERTS(a) ((a)->n * (a)->u < (a)->e ? (a)->n * (a)->u : (a)->e)
#define EXPERT_UNITS(a) (MAX_EXPERTS(a) * (((a)->m + UNIT_ROWS - 1) / UNIT_ROWS))
#define EXPERT_COST(a) (UNIT_ROWS * (a)->k * (1 + (a)->n * (a)->u / (a)->e))

/* A unit of a convolution: so many pixels, whose windows are gathered once, and so many channels.
 */
enum { STRIP_PIXELS = 70, UNIT_CHANNELS = 32 };
#define SPANS_OF(pixels) (((pixels) + STRIP_PIXELS - 1) / STRIP_PIXELS)
#define PARTS_OF(channels) (((channels) + UNIT_CHANNELS - 1) / UNIT_CHANNELS)
#define CONV_UNITS(a) \
  ((a)->n * (a)->groups * SPANS_OF((a)->p * (a)->q) * PARTS_OF((a)->m / (a)->groups))
/* A unit of one by Winograd: so many patches of 2 x 2 results, and 64 channels */
enum { PATCHES = SMALL_FILE ? 16 : 36 };
#define WINOGRAD_PATCHES(a) (((a)->p + 1) / 2 * (((a)->q + 1) / 2))
#define WINOGRAD_SPANS(a) ((WINOGRAD_PATCHES(a) + PATCHES - 1) / PATCHES)
#define WINOGRAD_GROUPS(channels) (((channels) + 63) / 64)
/* Each chunk gathers its windows again, so it has several units if that leaves eight chunks. */
#define CONV_GRAIN(units) ((units) < 16 ? 1 : (units) < 32 ? 2 : 4)
/* Each chunk of depthwise rows rearranges its weights again, and neighbouring rows share inputs. */
#define DEPTHWISE_GRAIN(rows) ((rows) < 16 ? 2 : (rows) < 64 ? 4 : 8)

/* A unit of a recurrent layer: so many rows of the batch at most, and as many panels of outputs as
 * a product takes together. Its stages are a step's passes over the weights, the first one's states
 * and the results. */
enum { LAYER_ROWS = 24 };
#define LAYER_SPANS(a) (((a)->n + LAYER_ROWS - 1) / LAYER_ROWS)
#define LAYER_BLOCKS(a) ((a)->cell == 3 ? 1 : 4)
#define LAYER_GROUPS(a) (((a)->width / 16 + LAYER_BLOCKS(a) - 1) / LAYER_BLOCKS(a))
#define LAYER_UNITS(a) ((a)->d * LAYER_SPANS(a) * LAYER_GROUPS(a))
#define LAYER_PASSES(a) ((a)->cell == 1 ? 2 : 1)
#define LAYER_STAGES(a) ((a)->t * LAYER_PASSES(a) + 2)

/* Every field of an instruction takes one 8-byte slot, also on 32-bit machines, so that Python
 * fills in instructions for all of them in the same way. */
#define HB_SLOTS 30

typedef struct {
  i16 kernel;     /* number of the kernel, by its place in kernels.h */
  i16 together;   /* so many instructions after it may run at the same time */
  i32 chunk;      /* units that threads claim; set by the runner */
  uint64_t ticks; /* time spent, if profiling; summed over runs */
  uint64_t slot[HB_SLOTS];
} hb_instruction;
_Static_assert(sizeof(hb_instruction) == 256, "four cache lines");

/* Before a run, slot[slot] of an instruction is set to the value of a register (a named size). */
typedef struct {
  i32 instruction, slot, reg;
} hb_patch;

#endif
