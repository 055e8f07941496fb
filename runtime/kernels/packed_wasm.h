/* The primitives of packed_scalar.h, four rows in a register; described there. */
#ifndef HALFBYTE_PACKED_WASM_H
#define HALFBYTE_PACKED_WASM_H

#include "simd_wasm.h"

/* Engines have fifteen registers and keep to the order of the file; LLVM's own order has all loads
 * of an expression before its products and sums up every offset. Products and what they load are
 * therefore written as they shall be, and codes are unpacked where they are used. */
enum { PARTS = 4, TILE_PARTS = 2, ROW_PARTS = 4, COLUMNS = 4, TOGETHER = 4, PEAK = 1 };
enum { PRODUCT_PARTS = 2, ROW_PRODUCT = 4, PRODUCT_ENDS = 0 };
#define PRODUCT_TILES(fused) TILES(2, 4, fused)
typedef v128_t pf;
typedef v128_t pi;
typedef struct {
  const uint8_t* codes;
} pw;

/* What `instruction` loads from p + offset */
#define LOADED(instruction, p, offset)                                             \
  ({                                                                               \
    v128_t loaded;                                                                 \
    __asm__ volatile("local.get %1\n\t" instruction " " #offset "\n\tlocal.set %0" \
                     : "=r"(loaded)                                                \
                     : "r"(p));                                                    \
    loaded;                                                                        \
  })
/* Four bytes, four times */
#define SPLAT(p, offset) LOADED("v128.load32_splat", p, offset)
/* A constant in a register: engines make it anew wherever it is written. */
static inline v128_t kept(v128_t constant) {
  __asm__("" : "+r"(constant));
  return constant;
}

#define HB_DOTS
static inline pi pi_start(const i16* xs, int first, int second) {
  v128_t sums = SPLAT(xs, 0), by = kept(wasm_i32x4_splat(PAIR_OF(-first, -second)));
  return first || second ? wasm_i32x4_dot_i16x8(sums, by) : wasm_i32x4_splat(0);
}
static inline pw pw_load_q4_0(const uint8_t* codes, int part) { return (pw){codes + 16 * part}; }
#define pw_load_q8_0 pw_load_q4_0
#define pw_load_5 pw_load_q4_0
#define pw_load_6 pw_load_q4_0

typedef struct {
  v128_t even, odd; /* 16-bit numbers */
} pairs;
static inline void dot_pairs(pi* sum, v128_t w, v128_t x) {
  __asm__ volatile(
      "local.get %1\n\tlocal.get %2\n\ti32x4.dot_i16x8_s\n\tlocal.get %0\n\t"
      "i32x4.add\n\tlocal.set %0"
      : "+r"(*sum)
      : "r"(w), "r"(x));
}
static inline pairs pairs_of(v128_t four) {
  return (pairs){wasm_i16x8_shr(wasm_i16x8_shl(four, 8), 8), wasm_i16x8_shr(four, 8)};
}

/* Products of 16-bit numbers where there is nothing better: weights and activations are widened
 * beforehand, so that a tile has loads, products and sums alone, in fifteen registers. A span of
 * PAIR_SPAN columns has each row of activations in one piece; of weights it has, for every four
 * columns, those of PAIR_PARTS parts one after the other. */
#define HB_PAIRS
enum { PAIR_SPAN = 128, PAIR_PARTS = 16 };
/* Sixteen codes of four rows, as pairs of two columns */
static inline void widen_codes(i16* to, v128_t codes) {
  v128_t low = wasm_i16x8_extend_low_i8x16(codes), high = wasm_i16x8_extend_high_i8x16(codes);
  wasm_v128_store(to, wasm_i32x4_shuffle(low, high, 0, 2, 4, 6));
  wasm_v128_store(to + 8, wasm_i32x4_shuffle(low, high, 1, 3, 5, 7));
}
/* Codes of a block of 32 columns of sixteen rows */
static inline void widen_block(i16* to, const uint8_t* codes, int q4) {
  v128_t less = wasm_i8x16_splat(8), mask = wasm_i8x16_splat(15);
  for (int i = 0; i < (q4 ? 4 : 8); i++, to += 16 * PAIR_PARTS - 64) {
    for (int p = 0; p < 4; p++, to += 16, codes += 16) {
      v128_t both = wasm_v128_load(codes), low = both;
      if (q4) {
        low = wasm_i8x16_sub(wasm_v128_and(both, mask), less);
        widen_codes(to + 64 * PAIR_PARTS, wasm_i8x16_sub(wasm_u8x16_shr(both, 4), less));
      }
      widen_codes(to, low);
    }
  }
}
/* A row of activations; columns are a multiple of 32. */
static inline void widen_row(i16* to, const i8* x, int columns) {
  for (int i = 0; i < columns; i += 32) {
    UNROLL for (int e = i; e < i + 32; e += 8) {
      wasm_v128_store(to + e, wasm_i16x8_load8x8(x + e));
    }
  }
}
/* sums[4 p + c] += products of eight columns of part p with row c. Offsets are bytes: rows of
 * activations are 256 apart, four columns of all parts 512. */
_Static_assert(2 * PAIR_SPAN == 256 && 32 * PAIR_PARTS == 512, "offsets below");
#define PAIR_COLUMN(c, place)             \
  {                                       \
    v128_t two = SPLAT(x, place);         \
    dot_pairs(&sums[c], first, two);      \
    dot_pairs(&sums[4 + c], second, two); \
  }
#define PAIR_STEP(w_first, w_second, x0, x1, x2, x3)  \
  {                                                   \
    v128_t first = LOADED("v128.load", w, w_first);   \
    v128_t second = LOADED("v128.load", w, w_second); \
    PAIR_COLUMN(0, x0)                                \
    PAIR_COLUMN(1, x1)                                \
    PAIR_COLUMN(2, x2)                                \
    PAIR_COLUMN(3, x3)                                \
  }
INLINE void pair_eight(pi* sums, const i16* w, const i16* x) {
  PAIR_STEP(0, 32, 0, 256, 512, 768)
  PAIR_STEP(16, 48, 4, 260, 516, 772)
  PAIR_STEP(512, 544, 8, 264, 520, 776)
  PAIR_STEP(528, 560, 12, 268, 524, 780)
}
#undef PAIR_STEP
#undef PAIR_COLUMN

/* Codes of four columns of four rows, and four activations, four times */
#ifdef HB_WASM_RELAXED
typedef v128_t four_codes;
typedef v128_t four_numbers;
static inline void dot(pi* sum, four_codes w, four_numbers x) {
  __asm__ volatile(
      "local.get %1\n\tlocal.get %2\n\tlocal.get %0\n\t"
      "i32x4.relaxed_dot_i8x16_i7x16_add_s\n\tlocal.set %0"
      : "+r"(*sum)
      : "r"(x), "r"(w));
}
static inline four_codes low_codes(v128_t both) {
  return wasm_v128_and(both, kept(wasm_i8x16_splat(15)));
}
static inline four_codes high_codes(v128_t both) {
  return wasm_v128_and(wasm_u16x8_shr(both, 4), kept(wasm_i8x16_splat(15)));
}
/* Bits from 4 on, which lie `left` further down */
static inline four_codes with_high(four_codes low, v128_t bits, int left, int mask) {
  bits = left < 0 ? wasm_u16x8_shr(bits, (uint32_t)-left) : wasm_i16x8_shl(bits, (uint32_t)left);
  return wasm_v128_or(low, wasm_v128_and(bits, kept(wasm_i8x16_splat((int8_t)mask))));
}
static inline four_numbers numbers_of(v128_t four) { return four; }
#else
typedef pairs four_codes;
typedef pairs four_numbers;
static inline void dot(pi* sum, four_codes w, four_numbers x) {
  dot_pairs(sum, w.even, x.even);
  dot_pairs(sum, w.odd, x.odd);
}
static inline four_codes low_codes(v128_t both) {
  v128_t mask = kept(wasm_i16x8_splat(15));
  return (four_codes){wasm_v128_and(both, mask), wasm_v128_and(wasm_u16x8_shr(both, 8), mask)};
}
static inline four_codes high_codes(v128_t both) {
  v128_t mask = kept(wasm_i16x8_splat(15));
  return (four_codes){wasm_v128_and(wasm_u16x8_shr(both, 4), mask), wasm_u16x8_shr(both, 12)};
}
static inline v128_t moved(v128_t bits, int left, int mask) {
  bits = left < 0 ? wasm_u16x8_shr(bits, (uint32_t)-left) : wasm_i16x8_shl(bits, (uint32_t)left);
  return wasm_v128_and(bits, kept(wasm_i16x8_splat((int16_t)mask)));
}
static inline four_codes with_high(four_codes low, v128_t bits, int left, int mask) {
  return (four_codes){wasm_v128_or(low.even, moved(bits, left, mask)),
                      wasm_v128_or(low.odd, moved(bits, left - 8, mask))};
}
static inline four_numbers numbers_of(v128_t four) { return pairs_of(four); }
#endif

/* Codes of four columns of a part, of Q4_0 also of the same 16 columns on */
#define CODES_AT(w, offset) LOADED("v128.load", (w).codes, offset)

/* Products of parts and columns with the activations at `offset` */
#define PRODUCTS(codes, offset)                                                             \
  UNROLL for (int c = 0; c < columns; c++) {                                                \
    four_numbers four = numbers_of(SPLAT(x + c * stride, offset));                          \
    UNROLL for (int p = 0; p < parts; p++) { dot(&dots[p * columns + c], codes[p], four); } \
  }
#define STEP(place, low_offset, high_offset)                                                 \
  if (columns == 1) {                                                                        \
    four_numbers first = numbers_of(SPLAT(x, low_offset));                                   \
    four_numbers second = numbers_of(SPLAT(x, high_offset));                                 \
    UNROLL for (int p = 0; p < parts; p++) {                                                 \
      v128_t both = CODES_AT(w[p], place);                                                   \
      dot(&dots[p], low_codes(both), first);                                                 \
      dot(&dots[p], high_codes(both), second);                                               \
    }                                                                                        \
  } else {                                                                                   \
    four_codes codes[PARTS];                                                                 \
    UNROLL for (int p = 0; p < parts; p++) { codes[p] = low_codes(CODES_AT(w[p], place)); }  \
    PRODUCTS(codes, low_offset)                                                              \
    UNROLL for (int p = 0; p < parts; p++) { codes[p] = high_codes(CODES_AT(w[p], place)); } \
    PRODUCTS(codes, high_offset)                                                             \
  }
INLINE void pi_dots_q4_0(pi* dots, const pw* w, int parts, const i8* x, int64_t stride, int columns,
                         const pi* starts) {
  UNROLL for (int i = 0; i < parts * columns; i++) { dots[i] = starts[i % columns]; }
  STEP(0, 0, 16)
  STEP(64, 4, 20)
  STEP(128, 8, 24)
  STEP(192, 12, 28)
}
#undef STEP
#define STEPS \
  STEP(0, 0)  \
  STEP(64, 4) STEP(128, 8) STEP(192, 12) STEP(256, 16) STEP(320, 20) STEP(384, 24) STEP(448, 28)
#define ALL_CODES(make, place) \
  four_codes codes[PARTS];     \
  UNROLL for (int p = 0; p < parts; p++) { codes[p] = make(CODES_AT(w[p], place)); }
/* Codes of five and six bits: low or high fours at `place`, bits above them at `bits` */
#define STEP(place, fours, bits, left, mask, offset)               \
  {                                                                \
    four_codes codes[PARTS];                                       \
    UNROLL for (int p = 0; p < parts; p++) {                       \
      four_codes low = fours(CODES_AT(w[p], place));               \
      codes[p] = with_high(low, CODES_AT(w[p], bits), left, mask); \
    }                                                              \
    PRODUCTS(codes, offset)                                        \
  }
INLINE void pi_dots_5(pi* dots, const pw* w, int parts, const i8* x, int64_t stride, int columns,
                      const pi* starts) {
  UNROLL for (int i = 0; i < parts * columns; i++) { dots[i] = starts[i % columns]; }
  STEP(0, low_codes, 256, 4, 16, 0)
  STEP(64, low_codes, 256, 3, 16, 4)
  STEP(128, low_codes, 256, 2, 16, 8)
  STEP(192, low_codes, 256, 1, 16, 12)
  STEP(0, high_codes, 256, 0, 16, 16)
  STEP(64, high_codes, 256, -1, 16, 20)
  STEP(128, high_codes, 256, -2, 16, 24)
  STEP(192, high_codes, 256, -3, 16, 28)
}
INLINE void pi_dots_half(pi* dots, const pw* w, int parts, int half, const i8* x, int64_t stride,
                         int columns, const pi* starts) {
  UNROLL for (int i = 0; i < parts * columns; i++) { dots[i] = starts[i % columns]; }
  if (half == 0) {
    STEP(0, low_codes, 256, 4, 48, 0)
    STEP(64, low_codes, 256, 2, 48, 4)
    STEP(128, low_codes, 256, 0, 48, 8)
    STEP(192, low_codes, 256, -2, 48, 12)
  } else {
    STEP(0, high_codes, 320, 4, 48, 16)
    STEP(64, high_codes, 320, 2, 48, 20)
    STEP(128, high_codes, 320, 0, 48, 24)
    STEP(192, high_codes, 320, -2, 48, 28)
  }
}
#undef STEP
/* Q8_0 by products of 16-bit numbers */
INLINE void pair_dots_q8_0(pi* dots, const pw* w, int parts, const i8* x, int64_t stride,
                           int columns, const pi* starts) {
  UNROLL for (int i = 0; i < parts * columns; i++) { dots[i] = starts[i % columns]; }
#define STEP(place, offset)                                                                \
  {                                                                                        \
    pairs codes[PARTS];                                                                    \
    UNROLL for (int p = 0; p < parts; p++) { codes[p] = pairs_of(CODES_AT(w[p], place)); } \
    UNROLL for (int c = 0; c < columns; c++) {                                             \
      pairs four = pairs_of(SPLAT(x + c * stride, offset));                                \
      UNROLL for (int p = 0; p < parts; p++) {                                             \
        dot_pairs(&dots[p * columns + c], codes[p].even, four.even);                       \
        dot_pairs(&dots[p * columns + c], codes[p].odd, four.odd);                         \
      }                                                                                    \
    }                                                                                      \
  }
  STEPS
#undef STEP
}
#ifdef HB_WASM_RELAXED
/* Whether the processor lacks the product, and the engine makes it of PMADDUBSW, whose sums of two
 * products are cut off at 16 bits: what needs two of them is then slower than 16-bit numbers. */
static inline int is_composed(void) {
  v128_t ones = kept(wasm_i8x16_splat(-1)), most = kept(wasm_i8x16_splat(127)), sum;
  __asm__(
      "local.get %1\n\tlocal.get %2\n\tv128.const 0, 0\n\t"
      "i32x4.relaxed_dot_i8x16_i7x16_add_s\n\tlocal.set %0"
      : "=r"(sum)
      : "r"(most), "r"(ones));
  return wasm_i32x4_extract_lane(sum, 0) == 2 * 32767;
}
/* A code is its low seven bits less 128 where it is negative: two products of seven bits. */
static inline four_codes signs(v128_t codes) {
  return wasm_v128_and(wasm_u16x8_shr(codes, 7), kept(wasm_i8x16_splat(1)));
}
static inline four_codes less_signs(v128_t codes) {
  return wasm_v128_and(codes, kept(wasm_i8x16_splat(127)));
}
/* One column: its magnitudes, split by sign, serve all parts as seven bits; codes stay signed. */
INLINE void row_dots_q8_0(pi* dots, const pw* w, int parts, const i8* x) {
  i8 magnitudes[64];
  pi negative[PARTS];
  v128_t zero = wasm_i8x16_splat(0);
  UNROLL for (int i = 0; i < 32; i += 16) {
    v128_t numbers = wasm_v128_load(x + i);
    wasm_v128_store(magnitudes + i, wasm_i8x16_max(numbers, zero));
    wasm_v128_store(magnitudes + 32 + i, wasm_i8x16_max(wasm_i8x16_neg(numbers), zero));
  }
  UNROLL for (int p = 0; p < parts; p++) { dots[p] = negative[p] = wasm_i32x4_splat(0); }
#define STEP(place, offset)                                                         \
  {                                                                                 \
    v128_t more = SPLAT(magnitudes, offset), less = SPLAT(magnitudes + 32, offset); \
    UNROLL for (int p = 0; p < parts; p++) {                                        \
      v128_t codes = CODES_AT(w[p], place);                                         \
      dot(&dots[p], more, codes);                                                   \
      dot(&negative[p], less, codes);                                               \
    }                                                                               \
  }
  STEPS
#undef STEP
  UNROLL for (int p = 0; p < parts; p++) { dots[p] = wasm_i32x4_sub(dots[p], negative[p]); }
}
/* Products with a q4_0's codes are fast enough where they are composed. */
#define BY_PAIRS(type) (sizeof(type) > sizeof(q4_0) && is_composed())
enum { PAIRS_ALONE = 0 };
INLINE void pi_dots_q8_0(pi* dots, const pw* w, int parts, const i8* x, int64_t stride, int columns,
                         const pi* starts) {
  if (columns == 1 && is_composed()) { /* several columns: linear_pairs.inc */
    pair_dots_q8_0(dots, w, parts, x, stride, columns, starts);
    return;
  }
  if (columns == 1) {
    row_dots_q8_0(dots, w, parts, x);
    return;
  }
  UNROLL for (int i = 0; i < parts * columns; i++) { dots[i] = wasm_i32x4_splat(0); }
#define STEP(place, offset) {ALL_CODES(signs, place) PRODUCTS(codes, offset)}
  STEPS
#undef STEP
  UNROLL for (int i = 0; i < parts * columns; i++) {
    dots[i] = wasm_i32x4_neg(wasm_i32x4_shl(dots[i], 7));
  }
#define STEP(place, offset) {ALL_CODES(less_signs, place) PRODUCTS(codes, offset)}
  STEPS
#undef STEP
}
#else
#define pi_dots_q8_0 pair_dots_q8_0
#define BY_PAIRS(type) 1
enum { PAIRS_ALONE = 1 };
#endif
#undef ALL_CODES
#undef STEPS
#undef PRODUCTS

/* For the benchmark */
static inline pi dot_four(pi sum, four_codes codes, const i8* x) {
  dot(&sum, codes, numbers_of(wasm_v128_load32_splat(x)));
  return sum;
}
static inline four_codes codes_of(const pw* w, int i) {
  v128_t both = wasm_v128_load(w->codes + 64 * (i % 4));
  return i < 4 ? low_codes(both) : high_codes(both);
}
#define CODES_OF(w, i) codes_of(&w, i)
static inline pf pf_zero(void) { return wasm_f32x4_splat(0); }
static inline pf pf_scales(const f16* d, int part) {
  return convert_f16(wasm_i32x4_shl(wasm_i32x4_load16x4(d + 4 * part), 13));
}
static inline pf pf_load(const float* p) { return wasm_v128_load(p); }
static inline pf pf_add_scaled(pf sum, pf v, float by) {
  return wasm_f32x4_add(sum, wasm_f32x4_mul(v, wasm_f32x4_splat(by)));
}
static inline pf pf_scaled(pf scale, pi dots) {
  return wasm_f32x4_mul(scale, wasm_f32x4_convert_i32x4(dots));
}
static inline pf pf_add_product(pf sum, pf scale, float by, pi dots) {
  v128_t scaled = wasm_f32x4_mul(scale, wasm_f32x4_splat(by));
  return wasm_f32x4_add(sum, wasm_f32x4_mul(scaled, wasm_f32x4_convert_i32x4(dots)));
}
static inline pf pf_set(float x) { return wasm_f32x4_splat(x); }
static inline pf pf_add(pf a, pf b) { return wasm_f32x4_add(a, b); }
static inline pf pf_max(pf a, pf b) { return wasm_f32x4_pmax(b, a); }
static inline pf pf_exact(pf a, pf b, pf c) { return wasm_f32x4_add(c, wasm_f32x4_mul(a, b)); }
#ifdef HB_WASM_RELAXED
static inline pf pf_fused(pf a, pf b, pf c) { return wasm_f32x4_relaxed_madd(a, b, c); }
#else
static inline pf pf_fused(pf a, pf b, pf c) { return pf_exact(a, b, c); }
#endif
static inline void pf_keep(float* p, pf v) { wasm_v128_store(p, v); }
static inline void pf_store(float* p, const float* r, pf v) {
  wasm_v128_store(p, r ? wasm_f32x4_add(wasm_v128_load(r), v) : v);
}

#endif
