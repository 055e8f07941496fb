/* The primitives of isa/scalar/simd.h on WebAssembly's 128-bit SIMD; described there. With
 * HB_WASM_RELAXED some of them use instructions of relaxed SIMD, whose results are defined for the
 * operands that they get: see isa/wasm_relaxed/packed.h. */
#ifndef HALFBYTE_ISA_WASM_SIMD_H
#define HALFBYTE_ISA_WASM_SIMD_H

#include <wasm_simd128.h>

#include "isa/shared/f16.h"

typedef struct {
  v128_t q[4]; /* lanes 0-3, 4-7, 8-11, 12-15 */
} vf;
typedef struct {
  v128_t q[4];
} vi;

#define QUADS(type, expression)                                 \
  type r;                                                       \
  UNROLL for (int i = 0; i < 4; i++) { r.q[i] = (expression); } \
  return r

static inline vf vf_set(float x) { QUADS(vf, wasm_f32x4_splat(x)); }
/* A constant: engines build one from three instructions wherever it is written, so it is loaded. */
#define vf_constant vf_constant
static inline vf vf_constant(const float* p) {
  v128_t four;
  __asm__ volatile("local.get %1\n\tv128.load32_splat 0\n\tlocal.set %0" : "=r"(four) : "r"(p));
  QUADS(vf, four);
}
/* x, after whose four parts nothing is computed earlier: LLVM would finish the first part of a
 * vector before it begins the second, and processors wait for each result. */
static inline vf vf_step(vf x) {
  UNROLL for (int i = 0; i < 4; i++) { __asm__ volatile("" : "+r"(x.q[i])); }
  return x;
}
static inline vf vf_load(const float* p) { QUADS(vf, wasm_v128_load(p + 4 * i)); }

/* Four F16 numbers, sign-extended to 32 bits and shifted left by 13. With exponent and fraction in
 * the place of a float's they are 2^112 times too small, also if subnormal; infinity and NaN become
 * 65536 and more, which no F16 number is. */
static inline v128_t scale_f16(v128_t shifted) {
  v128_t small = wasm_v128_and(shifted, wasm_i32x4_splat((i32)0x8FFFE000));
  return wasm_f32x4_mul(small, wasm_f32x4_splat(0x1p112f));
}
static inline v128_t too_large(v128_t value) {
  return wasm_f32x4_ge(wasm_f32x4_abs(value), wasm_f32x4_splat(0x1p16f));
}
SHARED v128_t with_special_f16(v128_t value) {
  v128_t large = too_large(value), fraction = wasm_v128_and(value, wasm_i32x4_splat(0x7FFFFF));
  v128_t quiet = wasm_v128_and(wasm_i32x4_gt(fraction, wasm_i32x4_splat(0)), large);
  value = wasm_v128_or(value, wasm_v128_and(large, wasm_i32x4_splat(0x7F800000)));
  return wasm_v128_or(value, wasm_v128_and(quiet, wasm_i32x4_splat(0x400000)));
}
static inline v128_t convert_f16(v128_t shifted) {
  v128_t value = scale_f16(shifted);
  return wasm_v128_or(value, wasm_v128_and(too_large(value), wasm_i32x4_splat(0x7F800000)));
}
static inline vf vf_load_f16(const f16* p) {
  vf r;
  v128_t most = wasm_i32x4_splat(0);
  UNROLL for (int i = 0; i < 4; i++) {
    r.q[i] = scale_f16(wasm_i32x4_shl(wasm_i32x4_load16x4(p + 4 * i), 13));
    most = wasm_f32x4_pmax(most, wasm_f32x4_abs(r.q[i]));
  }
  if (__builtin_expect(wasm_v128_any_true(too_large(most)), 0)) {
    for (int i = 0; i < 4; i++) {
      r.q[i] = with_special_f16(r.q[i]);
    }
  }
  return r;
}
static inline vf vf_load_bf16(const bf16* p) {
  QUADS(vf, wasm_i32x4_shl(wasm_u32x4_load16x4(p + 4 * i), 16));
}
static inline vf convert_i8(v128_t v) {
  v128_t low = wasm_i16x8_extend_low_i8x16(v), high = wasm_i16x8_extend_high_i8x16(v);
  return (vf){{wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(low)),
               wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(low)),
               wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(high)),
               wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(high))}};
}
static inline vf vf_load_i8(const i8* p) { return convert_i8(wasm_v128_load(p)); }
static inline vf vf_load_low4(const uint8_t* p) {
  return convert_i8(wasm_v128_and(wasm_v128_load(p), wasm_i8x16_splat(15)));
}
static inline vf vf_load_high4(const uint8_t* p) {
  return convert_i8(wasm_u8x16_shr(wasm_v128_load(p), 4));
}
static inline void vf_store(float* p, vf v) {
  for (int i = 0; i < 4; i++) {
    wasm_v128_store(p + 4 * i, v.q[i]);
  }
}
static inline void vf_store_f16(f16* p, vf v) {
  float lanes[16];
  vf_store(lanes, v);
  for (int i = 0; i < 16; i++) {
    p[i] = f32_to_f16(lanes[i]);
  }
}

SHARED vf vf_load_part(const float* p, int64_t count) {
  vf r;
  for (int i = 0; i < 4; i++) {
    int64_t left = count - 4 * i;
    if (left >= 4) {
      r.q[i] = wasm_v128_load(p + 4 * i);
    } else {
      r.q[i] = wasm_f32x4_make(left > 0 ? p[4 * i] : 0, left > 1 ? p[4 * i + 1] : 0,
                               left > 2 ? p[4 * i + 2] : 0, 0);
    }
  }
  return r;
}
SHARED vf vf_load_part_f16(const f16* p, int64_t count) {
  f16 lanes[16] = {0};
  for (int64_t i = 0; i < count; i++) {
    lanes[i] = p[i];
  }
  return vf_load_f16(lanes);
}
SHARED void vf_store_part(float* p, vf v, int64_t count) {
  float lanes[16];
  vf_store(lanes, v);
  for (int64_t i = 0; i < count; i++) {
    p[i] = lanes[i];
  }
}
SHARED void vf_store_part_f16(f16* p, vf v, int64_t count) {
  float lanes[16];
  vf_store(lanes, v);
  for (int64_t i = 0; i < count; i++) {
    p[i] = f32_to_f16(lanes[i]);
  }
}

static inline vf vf_add(vf a, vf b) { QUADS(vf, wasm_f32x4_add(a.q[i], b.q[i])); }
static inline vf vf_sub(vf a, vf b) { QUADS(vf, wasm_f32x4_sub(a.q[i], b.q[i])); }
static inline vf vf_mul(vf a, vf b) { QUADS(vf, wasm_f32x4_mul(a.q[i], b.q[i])); }
static inline vf vf_div(vf a, vf b) { QUADS(vf, wasm_f32x4_div(a.q[i], b.q[i])); }
#ifdef HB_WASM_RELAXED
static inline vf vf_fma(vf a, vf b, vf c) {
  QUADS(vf, wasm_f32x4_relaxed_madd(a.q[i], b.q[i], c.q[i]));
}
#else
static inline vf vf_fma(vf a, vf b, vf c) {
  QUADS(vf, wasm_f32x4_add(wasm_f32x4_mul(a.q[i], b.q[i]), c.q[i]));
}
#endif
/* pmax(b, a) is b < a ? a : b */
static inline vf vf_max(vf a, vf b) { QUADS(vf, wasm_f32x4_pmax(b.q[i], a.q[i])); }
static inline vf vf_min(vf a, vf b) { QUADS(vf, wasm_f32x4_pmin(b.q[i], a.q[i])); }
static inline vf vf_round(vf a) { QUADS(vf, wasm_f32x4_nearest(a.q[i])); }
static inline vf vf_sqrt(vf a) { QUADS(vf, wasm_f32x4_sqrt(a.q[i])); }
static inline vf vf_abs(vf a) { QUADS(vf, wasm_f32x4_abs(a.q[i])); }
static inline vf vf_copysign(vf a, vf sign) {
  QUADS(vf, wasm_v128_bitselect(a.q[i], sign.q[i], wasm_i32x4_splat(0x7FFFFFFF)));
}
static inline vf vf_cmp_ge(vf a, vf b) {
  QUADS(vf, wasm_v128_and(wasm_f32x4_ge(a.q[i], b.q[i]), wasm_f32x4_splat(1)));
}

static inline v128_t hadamard_4(v128_t v) {
  v128_t swapped = wasm_i32x4_shuffle(v, v, 2, 3, 0, 1); /* lanes two apart */
  v = wasm_i32x4_shuffle(wasm_f32x4_add(v, swapped), wasm_f32x4_sub(v, swapped), 0, 1, 4, 5);
  swapped = wasm_i32x4_shuffle(v, v, 1, 0, 3, 2);
  return wasm_i32x4_shuffle(wasm_f32x4_add(v, swapped), wasm_f32x4_sub(v, swapped), 0, 4, 2, 6);
}
static inline vf vf_hadamard(vf v) {
  vf w = {{wasm_f32x4_add(v.q[0], v.q[2]), wasm_f32x4_add(v.q[1], v.q[3]),
           wasm_f32x4_sub(v.q[0], v.q[2]), wasm_f32x4_sub(v.q[1], v.q[3])}};
  v = (vf){{wasm_f32x4_add(w.q[0], w.q[1]), wasm_f32x4_sub(w.q[0], w.q[1]),
            wasm_f32x4_add(w.q[2], w.q[3]), wasm_f32x4_sub(w.q[2], w.q[3])}};
  QUADS(vf, hadamard_4(v.q[i]));
}

#define FOLD(name, op)                                                 \
  static inline float name(vf v) {                                     \
    v128_t four = op(op(v.q[0], v.q[2]), op(v.q[1], v.q[3]));          \
    v128_t two = op(four, wasm_i32x4_shuffle(four, four, 2, 3, 2, 3)); \
    v128_t one = op(two, wasm_i32x4_shuffle(two, two, 1, 1, 1, 1));    \
    return wasm_f32x4_extract_lane(one, 0);                            \
  }
#define HIGHER(a, b) wasm_f32x4_pmax(b, a)
#define LOWER(a, b) wasm_f32x4_pmin(b, a)
FOLD(vf_hsum, wasm_f32x4_add)
FOLD(vf_hmax, HIGHER)
FOLD(vf_hmin, LOWER)
#undef FOLD
#undef HIGHER
#undef LOWER

static inline vi vi_set(i32 x) { QUADS(vi, wasm_i32x4_splat(x)); }
static inline vi vi_add(vi a, vi b) { QUADS(vi, wasm_i32x4_add(a.q[i], b.q[i])); }
static inline vi vi_sub(vi a, vi b) { QUADS(vi, wasm_i32x4_sub(a.q[i], b.q[i])); }
static inline vi vi_mul(vi a, vi b) { QUADS(vi, wasm_i32x4_mul(a.q[i], b.q[i])); }
static inline vi vi_or(vi a, vi b) { QUADS(vi, wasm_v128_or(a.q[i], b.q[i])); }
static inline vi vi_and(vi a, vi b) { QUADS(vi, wasm_v128_and(a.q[i], b.q[i])); }
static inline vi vi_shl(vi a, int by) { QUADS(vi, wasm_i32x4_shl(a.q[i], (uint32_t)by)); }
static inline vi vi_shr(vi a, int by) { QUADS(vi, wasm_u32x4_shr(a.q[i], (uint32_t)by)); }
static inline vi vi_cast(vf a) { QUADS(vi, a.q[i]); }
static inline vf vf_cast(vi a) { QUADS(vf, a.q[i]); }
static inline vf vf_convert(vi a) { QUADS(vf, wasm_f32x4_convert_i32x4(a.q[i])); }
static inline vi vi_truncate(vf a) { QUADS(vi, wasm_i32x4_trunc_sat_f32x4(a.q[i])); }
static inline i32 vi_hsum(vi v) {
  v128_t four = wasm_i32x4_add(wasm_i32x4_add(v.q[0], v.q[2]), wasm_i32x4_add(v.q[1], v.q[3]));
  v128_t two = wasm_i32x4_add(four, wasm_i32x4_shuffle(four, four, 2, 3, 2, 3));
  return wasm_i32x4_extract_lane(two, 0) + wasm_i32x4_extract_lane(two, 1);
}
static inline void vi_store_8(void* p, vi v) {
  vi low = vi_and(v, vi_set(0xFF));
  wasm_v128_store(p, wasm_u8x16_narrow_i16x8(wasm_u16x8_narrow_i32x4(low.q[0], low.q[1]),
                                             wasm_u16x8_narrow_i32x4(low.q[2], low.q[3])));
}
static inline void vi_store_16(uint16_t* p, vi v) {
  vi low = vi_and(v, vi_set(0xFFFF));
  wasm_v128_store(p, wasm_u16x8_narrow_i32x4(low.q[0], low.q[1]));
  wasm_v128_store(p + 8, wasm_u16x8_narrow_i32x4(low.q[2], low.q[3]));
}

static inline void sum_quantized(const i8* q, i16* sums) {
  v128_t first = wasm_i16x8_extadd_pairwise_i8x16(wasm_v128_load(q));
  v128_t second = wasm_i16x8_extadd_pairwise_i8x16(wasm_v128_load(q + 16));
  v128_t four = wasm_i32x4_extadd_pairwise_i16x8(
      wasm_i16x8_add(wasm_i16x8_shuffle(first, second, 0, 1, 2, 3, 8, 9, 10, 11),
                     wasm_i16x8_shuffle(first, second, 4, 5, 6, 7, 12, 13, 14, 15)));
  v128_t two = wasm_i32x4_add(four, wasm_i32x4_shuffle(four, four, 1, 0, 3, 2));
  sums[0] = (i16)wasm_i32x4_extract_lane(two, 0);
  sums[1] = (i16)wasm_i32x4_extract_lane(two, 2);
}

/* There is no such instruction, but a load whose result nobody needs does the same. */
static inline void prefetch(const void* p) { (void)*(const volatile uint8_t*)p; }

/* Thirty-two activations, -127...127, in the forms that the products take */
typedef struct {
  v128_t wide[4]; /* 16-bit integers, eight each */
  v128_t q[2];
  v128_t positive[2], negative[2]; /* magnitudes: q = positive - negative */
} vx;
static inline vx vx_load(const i8* p) {
  v128_t low = wasm_v128_load(p), high = wasm_v128_load(p + 16), zero = wasm_i8x16_splat(0);
  return (vx){
      {wasm_i16x8_extend_low_i8x16(low), wasm_i16x8_extend_high_i8x16(low),
       wasm_i16x8_extend_low_i8x16(high), wasm_i16x8_extend_high_i8x16(high)},
      {low, high},
      {wasm_i8x16_max(low, zero), wasm_i8x16_max(high, zero)},
      {wasm_i8x16_max(wasm_i8x16_neg(low), zero), wasm_i8x16_max(wasm_i8x16_neg(high), zero)}};
}
/* Four partial sums of 16-bit products with x */
static inline v128_t dot_wide(v128_t low, v128_t high, const vx* x) {
  v128_t a = wasm_i32x4_dot_i16x8(wasm_i16x8_extend_low_i8x16(low), x->wide[0]);
  v128_t b = wasm_i32x4_dot_i16x8(wasm_i16x8_extend_high_i8x16(low), x->wide[1]);
  v128_t c = wasm_i32x4_dot_i16x8(wasm_i16x8_extend_low_i8x16(high), x->wide[2]);
  v128_t d = wasm_i32x4_dot_i16x8(wasm_i16x8_extend_high_i8x16(high), x->wide[3]);
  return wasm_i32x4_add(wasm_i32x4_add(a, b), wasm_i32x4_add(c, d));
}
#ifdef HB_WASM_RELAXED
/* The second operand is unsigned with seven bits: Q4_0's values have four; for Q8_0 it is the
 * activations' magnitudes, split by sign once for all rows. */
static inline v128_t dot_q4_0(const uint8_t* w, const vx* x) {
  v128_t quantized = wasm_v128_load(w + 2);
  v128_t low = wasm_v128_and(quantized, wasm_i8x16_splat(15)), high = wasm_u8x16_shr(quantized, 4);
  v128_t sum = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x->q[0], low, wasm_i32x4_splat(0));
  return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x->q[1], high, sum);
}
static inline v128_t dot_q8_0(const uint8_t* w, const vx* x) {
  v128_t low = wasm_v128_load(w + 2), high = wasm_v128_load(w + 18), zero = wasm_i32x4_splat(0);
  v128_t more = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(low, x->positive[0], zero);
  v128_t less = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(low, x->negative[0], zero);
  more = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(high, x->positive[1], more);
  less = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(high, x->negative[1], less);
  return wasm_i32x4_sub(more, less);
}
#else
static inline v128_t dot_q4_0(const uint8_t* w, const vx* x) {
  v128_t quantized = wasm_v128_load(w + 2);
  return dot_wide(wasm_v128_and(quantized, wasm_i8x16_splat(15)), wasm_u8x16_shr(quantized, 4), x);
}
static inline v128_t dot_q8_0(const uint8_t* w, const vx* x) {
  return dot_wide(wasm_v128_load(w + 2), wasm_v128_load(w + 18), x);
}
#endif
/* The sums of four vectors of four */
static inline v128_t fold_four(v128_t a, v128_t b, v128_t c, v128_t d) {
  v128_t ab =
      wasm_i32x4_add(wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), wasm_i32x4_shuffle(a, b, 2, 6, 3, 7));
  v128_t cd =
      wasm_i32x4_add(wasm_i32x4_shuffle(c, d, 0, 4, 1, 5), wasm_i32x4_shuffle(c, d, 2, 6, 3, 7));
  return wasm_i32x4_add(wasm_i64x2_shuffle(ab, cd, 0, 2), wasm_i64x2_shuffle(ab, cd, 1, 3));
}
#define ROWS(type)                                                                               \
  SHARED v128_t four_rows_##type(const uint8_t* w, ptrdiff_t stride, const vx* x) {              \
    return fold_four(dot_##type(w, x), dot_##type(w + stride, x), dot_##type(w + 2 * stride, x), \
                     dot_##type(w + 3 * stride, x));                                             \
  }                                                                                              \
  static inline vi vi_rows_##type(const uint8_t* w, ptrdiff_t stride, vx x) {                    \
    QUADS(vi, four_rows_##type(w + 4 * i * stride, stride, &x));                                 \
  }
ROWS(q4_0)
ROWS(q8_0)
#undef ROWS

static inline v128_t four_f16(const uint8_t* p, ptrdiff_t stride) {
  v128_t high = wasm_i32x4_splat(0); /* in the upper halves of 32-bit lanes */
  high = wasm_v128_load16_lane(p, high, 1);
  high = wasm_v128_load16_lane(p + stride, high, 3);
  high = wasm_v128_load16_lane(p + 2 * stride, high, 5);
  high = wasm_v128_load16_lane(p + 3 * stride, high, 7);
  return convert_f16(wasm_i32x4_shr(high, 3));
}
static inline vf vf_gather_f16(const uint8_t* p, ptrdiff_t stride) {
  QUADS(vf, four_f16(p + 4 * i * stride, stride));
}

static inline vf vf_load_u8(const uint8_t* p) {
  v128_t v = wasm_v128_load(p);
  v128_t low = wasm_u16x8_extend_low_u8x16(v), high = wasm_u16x8_extend_high_u8x16(v);
  return (vf){{wasm_f32x4_convert_i32x4(wasm_u32x4_extend_low_u16x8(low)),
               wasm_f32x4_convert_i32x4(wasm_u32x4_extend_high_u16x8(low)),
               wasm_f32x4_convert_i32x4(wasm_u32x4_extend_low_u16x8(high)),
               wasm_f32x4_convert_i32x4(wasm_u32x4_extend_high_u16x8(high))}};
}

/* As 16-bit integers: one operand of the relaxed byte product has only seven bits. */
typedef struct {
  vi even, odd;
} vq;
static inline vq vq_load(const i8* p) {
  vq r;
  UNROLL for (int i = 0; i < 4; i++) {
    v128_t four = wasm_v128_load(p + 16 * i);
    r.even.q[i] = wasm_i16x8_shr(wasm_i16x8_shl(four, 8), 8);
    r.odd.q[i] = wasm_i16x8_shr(four, 8);
  }
  return r;
}
SHARED void quads_store(uint8_t* to, const uint8_t* from, int64_t count, uint8_t flip) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16, to += 32) {
    v128_t quantized = wasm_v128_xor(wasm_v128_load(from + i), wasm_i8x16_splat((i8)flip));
    v128_t even = wasm_v128_and(quantized, wasm_i16x8_splat(255)),
           odd = wasm_u16x8_shr(quantized, 8);
    wasm_v128_store(to, wasm_i32x4_shuffle(even, odd, 0, 4, 1, 5));
    wasm_v128_store(to + 16, wasm_i32x4_shuffle(even, odd, 2, 6, 3, 7));
  }
  for (; i < count; i += 4, to += 8) {
    uint32_t four, mask = 0x00FF00FF;
    __builtin_memcpy(&four, from + i, 4);
    four ^= 0x01010101u * flip;
    uint32_t pairs[2] = {four & mask, four >> 8 & mask};
    __builtin_memcpy(to, pairs, 8);
  }
}
static inline vi vi_dot_quads(vi sum, vq w, const uint8_t* x) {
  v128_t even = wasm_v128_load32_splat(x), odd = wasm_v128_load32_splat(x + 4);
  QUADS(vi, wasm_i32x4_add(wasm_i32x4_add(sum.q[i], wasm_i32x4_dot_i16x8(w.even.q[i], even)),
                           wasm_i32x4_dot_i16x8(w.odd.q[i], odd)));
}

#undef QUADS

#include "isa/shared/hsum_four.h"
#include "isa/shared/quantized_range.h"

#endif
