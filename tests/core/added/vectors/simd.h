/* The primitives of isa/scalar/simd.h as vectors of GCC and Clang; described there. */
#ifndef HALFBYTE_ISA_VECTORS_SIMD_H
#define HALFBYTE_ISA_VECTORS_SIMD_H

#include "isa/shared/f16.h"

/* Loops stay loops, as in the scalar table: unrolled, they take long to compile. */
#undef UNROLL
#define UNROLL

typedef float vf __attribute__((vector_size(64)));
typedef i32 vi __attribute__((vector_size(64)));
typedef i8 bytes_64 __attribute__((vector_size(64)));
typedef struct {
  const i8* q;
} vx;
typedef struct {
  const i8* w;
} vq;

#define EACH(type, expression)   \
  type r;                        \
  for (int i = 0; i < 16; i++) { \
    r[i] = (expression);         \
  }                              \
  return r

static inline bytes_64 load_64(const void* p) {
  bytes_64 v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

static inline vf vf_set(float x) { return (vf){0} + x; }
static inline vi vi_set(i32 x) { return (vi){0} + x; }
static inline vi vi_cast(vf a) { return (vi)a; }
static inline vf vf_cast(vi a) { return (vf)a; }
static inline vf vf_convert(vi a) { return __builtin_convertvector(a, vf); }
static inline vi vi_truncate(vf a) { return __builtin_convertvector(a, vi); }

static inline vi vi_add(vi a, vi b) { EACH(vi, (i32)((uint32_t)a[i] + (uint32_t)b[i])); }
static inline vi vi_sub(vi a, vi b) { EACH(vi, (i32)((uint32_t)a[i] - (uint32_t)b[i])); }
static inline vi vi_mul(vi a, vi b) { EACH(vi, (i32)((uint32_t)a[i] * (uint32_t)b[i])); }
static inline vi vi_or(vi a, vi b) { return a | b; }
static inline vi vi_and(vi a, vi b) { return a & b; }
static inline vi vi_shl(vi a, int by) { EACH(vi, (i32)((uint32_t)a[i] << by)); }
static inline vi vi_shr(vi a, int by) { EACH(vi, (i32)((uint32_t)a[i] >> by)); }
static inline i32 vi_hsum(vi v) {
  uint32_t sum = 0;
  for (int i = 0; i < 16; i++) {
    sum += (uint32_t)v[i];
  }
  return (i32)sum;
}
static inline void vi_store_8(void* p, vi v) {
  for (int i = 0; i < 16; i++) {
    ((uint8_t*)p)[i] = (uint8_t)v[i];
  }
}
static inline void vi_store_16(uint16_t* p, vi v) {
  for (int i = 0; i < 16; i++) {
    p[i] = (uint16_t)v[i];
  }
}

static inline vf vf_load(const float* p) {
  vf v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
static inline void vf_store(float* p, vf v) { __builtin_memcpy(p, &v, sizeof(v)); }
static inline vf vf_load_f16(const f16* p) { EACH(vf, f16_to_f32(p[i])); }
static inline vf vf_load_bf16(const bf16* p) { EACH(vf, of_bits((i32)((uint32_t)p[i] << 16))); }
static inline vf vf_load_i8(const i8* p) { EACH(vf, (float)p[i]); }
static inline vf vf_load_u8(const uint8_t* p) { EACH(vf, (float)p[i]); }
static inline vf vf_load_low4(const uint8_t* p) { EACH(vf, (float)(p[i] & 15)); }
static inline vf vf_load_high4(const uint8_t* p) { EACH(vf, (float)(p[i] >> 4)); }
static inline vf vf_load_part(const float* p, int64_t count) { EACH(vf, i < count ? p[i] : 0); }
static inline vf vf_load_part_f16(const f16* p, int64_t count) {
  EACH(vf, i < count ? f16_to_f32(p[i]) : 0);
}
static inline vf vf_gather_f16(const uint8_t* p, ptrdiff_t stride) {
  EACH(vf, f16_to_f32(*(const f16*)(p + i * stride)));
}
static inline void vf_store_part(float* p, vf v, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    p[i] = v[i];
  }
}
static inline void vf_store_part_f16(f16* p, vf v, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    p[i] = f32_to_f16(v[i]);
  }
}
static inline void vf_store_f16(f16* p, vf v) { vf_store_part_f16(p, v, 16); }

/* a where `mask` is all ones, b where it is 0 */
static inline vf select(vi mask, vf a, vf b) {
  return vf_cast((vi_cast(a) & mask) | (vi_cast(b) & ~mask));
}
static inline vf vf_add(vf a, vf b) { return a + b; }
static inline vf vf_sub(vf a, vf b) { return a - b; }
static inline vf vf_mul(vf a, vf b) { return a * b; }
static inline vf vf_div(vf a, vf b) { return a / b; }
static inline vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
static inline vf vf_max(vf a, vf b) { return select(a > b, a, b); }
static inline vf vf_min(vf a, vf b) { return select(a < b, a, b); }
static inline vf vf_cmp_ge(vf a, vf b) { return select(a >= b, vf_set(1), vf_set(0)); }
static inline vf vf_sqrt(vf a) { EACH(vf, __builtin_sqrtf(a[i])); }
static inline vf vf_abs(vf a) { return vf_cast(vi_cast(a) & 0x7FFFFFFF); }
static inline vf vf_copysign(vf a, vf sign) { return select(vi_set(0x7FFFFFFF), a, sign); }

/* Folded in the order of all tables: lane i with lane i + 8, then + 4, + 2 and + 1 */
#define FOLD(name, combine)               \
  static inline float name(vf v) {        \
    for (int half = 8; half; half /= 2) { \
      for (int i = 0; i < half; i++) {    \
        float a = v[i], b = v[i + half];  \
        v[i] = (combine);                 \
      }                                   \
    }                                     \
    return v[0];                          \
  }
FOLD(vf_hsum, a + b)
FOLD(vf_hmax, a > b ? a : b)
FOLD(vf_hmin, a < b ? a : b)
#undef FOLD

static inline vf vf_hadamard(vf v) {
  for (int apart = 8; apart; apart /= 2) {
    for (int i = 0; i < 16; i++) {
      if (!(i & apart)) {
        float sum = v[i] + v[i + apart];
        v[i + apart] = v[i] - v[i + apart];
        v[i] = sum;
      }
    }
  }
  return v;
}

static inline void prefetch(const void* p) { __builtin_prefetch(p); }

static inline vx vx_load(const i8* p) { return (vx){p}; }
static inline vi vi_rows_q4_0(const uint8_t* w, ptrdiff_t stride, vx x) {
  vi sums = {0};
  for (int row = 0; row < 16; row++) {
    const q4_0* block = (const q4_0*)(w + row * stride);
    for (int i = 0; i < 16; i++) {
      sums[row] += (block->qs[i] & 15) * x.q[i] + (block->qs[i] >> 4) * x.q[i + 16];
    }
  }
  return sums;
}
static inline vi vi_rows_q8_0(const uint8_t* w, ptrdiff_t stride, vx x) {
  vi sums = {0};
  for (int row = 0; row < 16; row++) {
    const q8_0* block = (const q8_0*)(w + row * stride);
    for (int i = 0; i < 32; i++) {
      sums[row] += block->qs[i] * x.q[i];
    }
  }
  return sums;
}

static inline vq vq_load(const i8* p) { return (vq){p}; }
static inline vi vi_dot_quads(vi sum, vq w, const uint8_t* x) {
  for (int i = 0; i < 64; i++) {
    sum[i / 4] += w.w[i] * x[i % 4];
  }
  return sum;
}

static inline void sum_quantized(const i8* q, i16* sums) {
  for (int half = 0; half < 2; half++) {
    int sum = 0;
    for (int i = 0; i < 16; i++) {
      sum += q[16 * half + i];
    }
    sums[half] = (i16)sum;
  }
}

#undef EACH

#include "isa/shared/hsum_four.h"
#include "isa/shared/quads_store.h"
#include "isa/shared/quantized_range.h"

#endif
