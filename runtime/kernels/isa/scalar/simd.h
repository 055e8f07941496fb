/* The primitives on one number at a time: the table that every machine has. The simd.h of other
 * instruction sets have the same names with the same results, to the bit. A vector has sixteen
 * lanes on all of them, so sums are made in the same order; only vf_fma, for products of
 * floats, may round differently, unless its product is exact.
 *
 *   vf, vi  sixteen lanes of float, of int32
 *   vx      one block of 32 int8 activations
 *   vq      four int8 weights of each of sixteen channels */
#ifndef HALFBYTE_ISA_SCALAR_SIMD_H
#define HALFBYTE_ISA_SCALAR_SIMD_H

#include "isa/shared/f16.h"

/* Vectors are loops here, and few of them fit into registers: unrolling more would only take time
 * to compile. */
#undef UNROLL
#define UNROLL

typedef struct {
  float l[16];
} vf;
typedef struct {
  i32 l[16];
} vi;
typedef struct {
  const i8* q;
} vx;

#define EACH(type, expression)   \
  type r;                        \
  for (int i = 0; i < 16; i++) { \
    r.l[i] = (expression);       \
  }                              \
  return r
/* The same, of operations that neither float products nor exponentials use: as a loop, they take
 * much less room. */
#ifdef __clang__
#define FEW(type, expression)                                                                   \
  type r;                                                                                       \
  _Pragma("clang loop unroll(disable)") for (int i = 0; i < 16; i++) { r.l[i] = (expression); } \
  return r
#else
#define FEW EACH
#endif

static inline vf vf_set(float x) { EACH(vf, x); }
static inline vf vf_load(const float* p) { EACH(vf, p[i]); }
static inline vf vf_load_f16(const f16* p) { EACH(vf, f16_to_f32(p[i])); }
static inline vf vf_load_bf16(const bf16* p) { EACH(vf, of_bits((i32)((uint32_t)p[i] << 16))); }
static inline vf vf_load_i8(const i8* p) { EACH(vf, (float)p[i]); }
/* low or high four bits of 16 bytes */
static inline vf vf_load_low4(const uint8_t* p) { EACH(vf, (float)(p[i] & 15)); }
static inline vf vf_load_high4(const uint8_t* p) { EACH(vf, (float)(p[i] >> 4)); }
static inline void vf_store(float* p, vf v) {
  for (int i = 0; i < 16; i++) {
    p[i] = v.l[i];
  }
}
static inline void vf_store_f16(f16* p, vf v) {
  for (int i = 0; i < 16; i++) {
    p[i] = f32_to_f16(v.l[i]);
  }
}

/* The first `count` < 16 elements in memory; the other lanes are zeros. */
static inline vf vf_load_part(const float* p, int64_t count) { FEW(vf, i < count ? p[i] : 0); }
static inline vf vf_load_part_f16(const f16* p, int64_t count) {
  FEW(vf, i < count ? f16_to_f32(p[i]) : 0);
}
static inline void vf_store_part(float* p, vf v, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    p[i] = v.l[i];
  }
}
static inline void vf_store_part_f16(f16* p, vf v, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    p[i] = f32_to_f16(v.l[i]);
  }
}

static inline vf vf_add(vf a, vf b) { EACH(vf, a.l[i] + b.l[i]); }
static inline vf vf_sub(vf a, vf b) { EACH(vf, a.l[i] - b.l[i]); }
static inline vf vf_mul(vf a, vf b) { EACH(vf, a.l[i] * b.l[i]); }
static inline vf vf_div(vf a, vf b) { FEW(vf, a.l[i] / b.l[i]); }
/* a * b + c, possibly rounded once: only where results may differ between tables */
static inline vf vf_fma(vf a, vf b, vf c) { EACH(vf, a.l[i] * b.l[i] + c.l[i]); }
/* the second operand if either is NaN */
static inline vf vf_max(vf a, vf b) { EACH(vf, a.l[i] > b.l[i] ? a.l[i] : b.l[i]); }
static inline vf vf_min(vf a, vf b) { EACH(vf, a.l[i] < b.l[i] ? a.l[i] : b.l[i]); }
/* To the nearest integer, ties to even; |x| < 2^22 */
static inline vf vf_round(vf a) {
  FEW(vf, __builtin_copysignf(a.l[i] + 12582912.0f - 12582912.0f, a.l[i]));
}
static inline vf vf_sqrt(vf a) { FEW(vf, __builtin_sqrtf(a.l[i])); }
static inline vf vf_abs(vf a) { FEW(vf, of_bits(bits_of(a.l[i]) & 0x7FFFFFFF)); }
static inline vf vf_copysign(vf a, vf sign) {
  FEW(vf, of_bits((bits_of(a.l[i]) & 0x7FFFFFFF) | (bits_of(sign.l[i]) & ~0x7FFFFFFF)));
}
/* 1 where a >= b, else 0 */
static inline vf vf_cmp_ge(vf a, vf b) { FEW(vf, a.l[i] >= b.l[i] ? 1.0f : 0.0f); }

/* The sixteen lanes times the Hadamard matrix of order 16: sums and differences of lanes 8 apart,
 * then 4, 2 and 1 */
static inline vf vf_hadamard(vf v) {
  for (int apart = 8; apart; apart /= 2) {
    for (int i = 0; i < 16; i++) {
      if (!(i & apart)) {
        float sum = v.l[i] + v.l[i + apart];
        v.l[i + apart] = v.l[i] - v.l[i + apart];
        v.l[i] = sum;
      }
    }
  }
  return v;
}

/* in the same order on all tables: 16 -> 8 -> 4 -> 2 -> 1, lane i with lane i + half */
static inline float vf_hsum(vf v) {
  for (int half = 8; half; half /= 2) {
    for (int i = 0; i < half; i++) {
      v.l[i] += v.l[i + half];
    }
  }
  return v.l[0];
}
static inline float vf_hmax(vf v) {
  for (int half = 8; half; half /= 2) {
    for (int i = 0; i < half; i++) {
      v.l[i] = v.l[i] > v.l[i + half] ? v.l[i] : v.l[i + half];
    }
  }
  return v.l[0];
}
static inline float vf_hmin(vf v) {
  for (int half = 8; half; half /= 2) {
    for (int i = 0; i < half; i++) {
      v.l[i] = v.l[i] < v.l[i + half] ? v.l[i] : v.l[i + half];
    }
  }
  return v.l[0];
}

static inline vi vi_set(i32 x) { EACH(vi, x); }
static inline vi vi_add(vi a, vi b) { EACH(vi, (i32)((uint32_t)a.l[i] + (uint32_t)b.l[i])); }
static inline vi vi_sub(vi a, vi b) { EACH(vi, (i32)((uint32_t)a.l[i] - (uint32_t)b.l[i])); }
static inline vi vi_mul(vi a, vi b) { FEW(vi, (i32)((uint32_t)a.l[i] * (uint32_t)b.l[i])); }
static inline vi vi_or(vi a, vi b) { FEW(vi, a.l[i] | b.l[i]); }
static inline vi vi_and(vi a, vi b) { FEW(vi, a.l[i] & b.l[i]); }
static inline vi vi_shl(vi a, int by) { EACH(vi, (i32)((uint32_t)a.l[i] << by)); }
static inline vi vi_shr(vi a, int by) { FEW(vi, (i32)((uint32_t)a.l[i] >> by)); }
static inline vi vi_cast(vf a) { EACH(vi, bits_of(a.l[i])); }
static inline vf vf_cast(vi a) { EACH(vf, of_bits(a.l[i])); }
static inline vf vf_convert(vi a) { FEW(vf, (float)a.l[i]); }
/* towards zero; the numbers fit into int32 */
static inline vi vi_truncate(vf a) { FEW(vi, (i32)a.l[i]); }
static inline i32 vi_hsum(vi v) {
  uint32_t sum = 0;
  for (int i = 0; i < 16; i++) {
    sum += (uint32_t)v.l[i];
  }
  return (i32)sum;
}
/* the low 8 or 16 bits of each lane */
static inline void vi_store_8(void* p, vi v) {
  for (int i = 0; i < 16; i++) {
    ((uint8_t*)p)[i] = (uint8_t)v.l[i];
  }
}
static inline void vi_store_16(uint16_t* p, vi v) {
  for (int i = 0; i < 16; i++) {
    p[i] = (uint16_t)v.l[i];
  }
}

/* Starts to load a cache line that is needed soon; any address is allowed. */
static inline void prefetch(const void* p) { (void)p; }

static inline vx vx_load(const i8* p) { return (vx){p}; }
/* Lane r: sum over 32 of value * x in the Q4_0 block at w + r * stride bytes; values are 0...15. */
static inline vi vi_rows_q4_0(const uint8_t* w, ptrdiff_t stride, vx x) {
  vi sums = {{0}};
  for (int row = 0; row < 16; row++) {
    const q4_0* block = (const q4_0*)(w + row * stride);
    for (int i = 0; i < 16; i++) {
      sums.l[row] += (block->qs[i] & 15) * x.q[i] + (block->qs[i] >> 4) * x.q[i + 16];
    }
  }
  return sums;
}
/* The same for Q8_0 blocks, whose values may be -128; x is never -128. */
static inline vi vi_rows_q8_0(const uint8_t* w, ptrdiff_t stride, vx x) {
  vi sums = {{0}};
  for (int row = 0; row < 16; row++) {
    const q8_0* block = (const q8_0*)(w + row * stride);
    for (int i = 0; i < 32; i++) {
      sums.l[row] += block->qs[i] * x.q[i];
    }
  }
  return sums;
}
/* 16 F16 numbers, `stride` bytes apart */
static inline vf vf_gather_f16(const uint8_t* p, ptrdiff_t stride) {
  FEW(vf, f16_to_f32(*(const f16*)(p + i * stride)));
}

typedef struct {
  const i8* w;
} vq;
static inline vq vq_load(const i8* p) { return (vq){p}; }
/* Four numbers of a pixel take QUAD bytes in a strip. They are unsigned bytes, or signed ones, 128
 * less, if QUAD_FLIP is 128. `quads_store` makes them from bytes, some bits of each inverted. */
/* sum + the products of four numbers with each channel's weights */
static inline vi vi_dot_quads(vi sum, vq w, const uint8_t* x) {
  for (int i = 0; i < 64; i++) {
    sum.l[i / 4] += w.w[i] * x[i % 4];
  }
  return sum;
}
static inline vf vf_load_u8(const uint8_t* p) { FEW(vf, (float)p[i]); }

#undef EACH
#undef FEW

/* sums of the first and of the second sixteen values */
static inline void sum_quantized(const i8* q, i16* sums) {
  for (int half = 0; half < 2; half++) {
    int sum = 0;
    for (int i = 0; i < 16; i++) {
      sum += q[16 * half + i];
    }
    sums[half] = (i16)sum;
  }
}

#include "isa/shared/hsum_four.h"
#include "isa/shared/quads_store.h"
#include "isa/shared/quantized_range.h"

#endif
