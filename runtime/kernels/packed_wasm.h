/* The primitives of packed_scalar.h, four rows in a register; described there. */
#ifndef HALFBYTE_PACKED_WASM_H
#define HALFBYTE_PACKED_WASM_H

#include "simd_wasm.h"

/* Engines have as few as fifteen registers: codes are unpacked where they are used, for all columns
 * of a tile. */
enum { PARTS = 4, COLUMNS = 4, TOGETHER = 4, PEAK = 1 };
typedef v128_t pf;
typedef v128_t pi;
typedef struct {
  const uint8_t* codes;
} pw;
typedef const i8* px_q4_0;

static inline pi pi_start(const i32* xs, int offset) {
  int shift = offset == 8 ? 3 : 7;
  return offset ? wasm_i32x4_neg(wasm_i32x4_shl(wasm_v128_load32_splat(xs), shift))
                : wasm_i32x4_splat(0);
}
static inline pw pw_load_q4_0(const uint8_t* codes, int part) { return (pw){codes + 16 * part}; }
static inline pw pw_load_q8_0(const uint8_t* codes, int part) { return (pw){codes + 16 * part}; }
static inline px_q4_0 px_load_q4_0(const i8* x) { return x; }
static inline v128_t four_of(const i8* x) { return wasm_v128_load32_splat(x); }
/* Codes of columns 4 i to 4 i + 3 of a part, and of the same 16 columns on */
static inline v128_t low_codes(const pw* w, int i) {
  return wasm_v128_and(wasm_v128_load(w->codes + 64 * i), wasm_i8x16_splat(15));
}
static inline v128_t high_codes(const pw* w, int i) {
  return wasm_u8x16_shr(wasm_v128_load(w->codes + 64 * i), 4);
}
#ifdef HB_WASM_RELAXED
static inline pi dot_four(pi sum, v128_t codes, const i8* x) {
  return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(four_of(x), codes, sum);
}
INLINE void dots_q4_0(pi* dots, const pw* w, const i8* x, int64_t stride, int columns) {
  UNROLL for (int i = 0; i < 4; i++) {
    v128_t low = low_codes(w, i), high = high_codes(w, i);
    UNROLL for (int c = 0; c < columns; c++) {
      dots[c] = dot_four(dots[c], low, x + c * stride + 4 * i);
      dots[c] = dot_four(dots[c], high, x + c * stride + 4 * i + 16);
    }
  }
}
/* A code is its low seven bits less 128 where it is negative: two products of seven bits. */
INLINE void dots_q8_0(pi* dots, const pw* w, const i8* x, int64_t stride, int columns) {
  pi less[TOGETHER];
  UNROLL for (int c = 0; c < columns; c++) { less[c] = wasm_i32x4_splat(0); }
  UNROLL for (int i = 0; i < 8; i++) {
    v128_t codes = wasm_v128_load(w->codes + 64 * i), sign = wasm_u8x16_shr(codes, 7);
    v128_t low = wasm_v128_and(codes, wasm_i8x16_splat(127));
    UNROLL for (int c = 0; c < columns; c++) {
      dots[c] = dot_four(dots[c], low, x + c * stride + 4 * i);
      less[c] = dot_four(less[c], sign, x + c * stride + 4 * i);
    }
  }
  UNROLL for (int c = 0; c < columns; c++) {
    dots[c] = wasm_i32x4_sub(dots[c], wasm_i32x4_shl(less[c], 7));
  }
}
/* One column: its magnitudes, split by sign, serve all parts as seven bits; codes stay signed. */
typedef struct {
  v128_t positive[2], negative[2];
} px_q8_0;
static inline px_q8_0 px_load_q8_0(const i8* x) {
  v128_t low = wasm_v128_load(x), high = wasm_v128_load(x + 16), zero = wasm_i8x16_splat(0);
  return (px_q8_0){
      {wasm_i8x16_max(low, zero), wasm_i8x16_max(high, zero)},
      {wasm_i8x16_max(wasm_i8x16_neg(low), zero), wasm_i8x16_max(wasm_i8x16_neg(high), zero)}};
}
static inline pi pi_dot_q8_0(const pw* w, px_q8_0 x, pi start) {
  pi more = start, less = wasm_i32x4_splat(0);
#define LANE(v, i) wasm_i32x4_shuffle(v, v, i, i, i, i)
#define DOT(half, i)                                                                     \
  codes = wasm_v128_load(w->codes + 64 * (4 * half + i));                                \
  more = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(codes, LANE(x.positive[half], i), more); \
  less = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(codes, LANE(x.negative[half], i), less)
  v128_t codes;
  DOT(0, 0);
  DOT(0, 1);
  DOT(0, 2);
  DOT(0, 3);
  DOT(1, 0);
  DOT(1, 1);
  DOT(1, 2);
  DOT(1, 3);
#undef DOT
#undef LANE
  return wasm_i32x4_sub(more, less);
}
#else
/* Sums of pairs, a row's two beside each other: enough for a benchmark */
static inline pi dot_four(pi sum, v128_t codes, const i8* x) {
  v128_t four = wasm_i16x8_extend_low_i8x16(four_of(x));
  sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(wasm_i16x8_extend_low_i8x16(codes), four));
  return wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(wasm_i16x8_extend_high_i8x16(codes), four));
}
/* Codes widen to 16 bits; pairs of products of a row lie side by side until the end. */
typedef struct {
  v128_t low, high;
} pairs;
INLINE void dot_pairs(pairs* sums, v128_t codes, const i8* x, int64_t stride, int columns) {
  v128_t low = wasm_i16x8_extend_low_i8x16(codes), high = wasm_i16x8_extend_high_i8x16(codes);
  UNROLL for (int c = 0; c < columns; c++) {
    v128_t four = wasm_i16x8_extend_low_i8x16(four_of(x + c * stride));
    sums[c].low = wasm_i32x4_add(sums[c].low, wasm_i32x4_dot_i16x8(low, four));
    sums[c].high = wasm_i32x4_add(sums[c].high, wasm_i32x4_dot_i16x8(high, four));
  }
}
INLINE void fold_pairs(pi* dots, const pairs* sums, int columns) {
  UNROLL for (int c = 0; c < columns; c++) {
    v128_t even = wasm_i32x4_shuffle(sums[c].low, sums[c].high, 0, 2, 4, 6);
    v128_t odd = wasm_i32x4_shuffle(sums[c].low, sums[c].high, 1, 3, 5, 7);
    dots[c] = wasm_i32x4_add(dots[c], wasm_i32x4_add(even, odd));
  }
}
INLINE void clear_pairs(pairs* sums, int columns) {
  UNROLL for (int c = 0; c < columns; c++) { sums[c].low = sums[c].high = wasm_i32x4_splat(0); }
}
typedef const i8* px_q8_0;
static inline px_q8_0 px_load_q8_0(const i8* x) { return x; }
INLINE void dots_q4_0(pi* dots, const pw* w, const i8* x, int64_t stride, int columns) {
  pairs sums[TOGETHER];
  clear_pairs(sums, columns);
  UNROLL for (int i = 0; i < 4; i++) {
    dot_pairs(sums, low_codes(w, i), x + 4 * i, stride, columns);
    dot_pairs(sums, high_codes(w, i), x + 4 * i + 16, stride, columns);
  }
  fold_pairs(dots, sums, columns);
}
INLINE void dots_q8_0(pi* dots, const pw* w, const i8* x, int64_t stride, int columns) {
  pairs sums[TOGETHER];
  clear_pairs(sums, columns);
  UNROLL for (int i = 0; i < 8; i++) {
    dot_pairs(sums, wasm_v128_load(w->codes + 64 * i), x + 4 * i, stride, columns);
  }
  fold_pairs(dots, sums, columns);
}
#endif
#define HB_DOTS
#define DOTS(type)                                                               \
  INLINE void pi_dots_##type(pi* dots, const pw* w, const i8* x, int64_t stride, \
                             const pi* starts) {                                 \
    UNROLL for (int c = 0; c < TOGETHER; c++) { dots[c] = starts[c]; }           \
    dots_##type(dots, w, x, stride, TOGETHER);                                   \
  }
DOTS(q4_0)
DOTS(q8_0)
#undef DOTS
#define DOT(type)                                                      \
  static inline pi pi_dot_##type(const pw* w, const i8* x, pi start) { \
    dots_##type(&start, w, x, 0, 1);                                   \
    return start;                                                      \
  }
DOT(q4_0)
#ifndef HB_WASM_RELAXED
DOT(q8_0)
#endif
#undef DOT
#define CODES_OF(w, i) (i < 4 ? low_codes(&w, i) : high_codes(&w, i - 4))
static inline pf pf_zero(void) { return wasm_f32x4_splat(0); }
static inline pf pf_scales(const f16* d, int part) {
  return convert_f16(wasm_i32x4_shl(wasm_i32x4_load16x4(d + 4 * part), 13));
}
static inline pf pf_add_product(pf sum, pf scale, float by, pi dots) {
  v128_t scaled = wasm_f32x4_mul(scale, wasm_f32x4_splat(by));
  return wasm_f32x4_add(sum, wasm_f32x4_mul(scaled, wasm_f32x4_convert_i32x4(dots)));
}
static inline void pf_store(float* p, const float* r, pf v) {
  wasm_v128_store(p, r ? wasm_f32x4_add(wasm_v128_load(r), v) : v);
}

#endif
