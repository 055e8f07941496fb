/* The primitives of isa/scalar/simd.h on AArch64's NEON, as on every such machine; described there.
 * isa/dotprod/packed.h and isa/i8mm/packed.h choose other instructions for byte products. */
#ifndef HALFBYTE_ISA_NEON_SIMD_H
#define HALFBYTE_ISA_NEON_SIMD_H

#include <arm_neon.h>

#include "machine.h"

typedef struct {
  float32x4_t q[4]; /* lanes 0-3, 4-7, 8-11, 12-15 */
} vf;
typedef struct {
  int32x4_t q[4];
} vi;
typedef struct {
  int8x16_t q[2];
} vx;

#define QUADS(type, expression) \
  type r;                       \
  for (int i = 0; i < 4; i++) { \
    r.q[i] = (expression);      \
  }                             \
  return r

static inline float f16_to_f32(f16 h) {
  union {
    f16 bits;
    __fp16 value;
  } u = {h};
  return u.value;
}
static inline f16 f32_to_f16(float x) {
  union {
    __fp16 value;
    f16 bits;
  } u = {(__fp16)x};
  return u.bits;
}

static inline vf vf_set(float x) { QUADS(vf, vdupq_n_f32(x)); }
static inline vf vf_load(const float* p) { QUADS(vf, vld1q_f32(p + 4 * i)); }
static inline float32x4_t convert_f16(uint16x4_t v) {
  return vcvt_f32_f16(vreinterpret_f16_u16(v));
}
static inline vf vf_load_f16(const f16* p) { QUADS(vf, convert_f16(vld1_u16(p + 4 * i))); }
static inline vf vf_load_bf16(const bf16* p) {
  QUADS(vf, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)));
}
static inline vf convert_i8(int8x16_t v) {
  int16x8_t low = vmovl_s8(vget_low_s8(v)), high = vmovl_high_s8(v);
  return (vf){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
               vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
}
static inline uint8x16_t low_4(const uint8_t* p) { return vandq_u8(vld1q_u8(p), vdupq_n_u8(15)); }
static inline uint8x16_t high_4(const uint8_t* p) { return vshrq_n_u8(vld1q_u8(p), 4); }
static inline vf vf_load_i8(const i8* p) { return convert_i8(vld1q_s8(p)); }
static inline vf vf_load_low4(const uint8_t* p) {
  return convert_i8(vreinterpretq_s8_u8(low_4(p)));
}
static inline vf vf_load_high4(const uint8_t* p) {
  return convert_i8(vreinterpretq_s8_u8(high_4(p)));
}
static inline void vf_store(float* p, vf v) {
  for (int i = 0; i < 4; i++) {
    vst1q_f32(p + 4 * i, v.q[i]);
  }
}
static inline void vf_store_f16(f16* p, vf v) {
  for (int i = 0; i < 4; i++) {
    vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(v.q[i])));
  }
}

static inline vf vf_load_part(const float* p, int64_t count) {
  float lanes[16] = {0};
  for (int64_t i = 0; i < count; i++) {
    lanes[i] = p[i];
  }
  return vf_load(lanes);
}
static inline vf vf_load_part_f16(const f16* p, int64_t count) {
  f16 lanes[16] = {0};
  for (int64_t i = 0; i < count; i++) {
    lanes[i] = p[i];
  }
  return vf_load_f16(lanes);
}
static inline void vf_store_part(float* p, vf v, int64_t count) {
  float lanes[16];
  vf_store(lanes, v);
  for (int64_t i = 0; i < count; i++) {
    p[i] = lanes[i];
  }
}
static inline void vf_store_part_f16(f16* p, vf v, int64_t count) {
  f16 lanes[16];
  vf_store_f16(lanes, v);
  for (int64_t i = 0; i < count; i++) {
    p[i] = lanes[i];
  }
}

static inline vf vf_add(vf a, vf b) { QUADS(vf, vaddq_f32(a.q[i], b.q[i])); }
static inline vf vf_sub(vf a, vf b) { QUADS(vf, vsubq_f32(a.q[i], b.q[i])); }
static inline vf vf_mul(vf a, vf b) { QUADS(vf, vmulq_f32(a.q[i], b.q[i])); }
static inline vf vf_div(vf a, vf b) { QUADS(vf, vdivq_f32(a.q[i], b.q[i])); }
static inline vf vf_fma(vf a, vf b, vf c) { QUADS(vf, vfmaq_f32(c.q[i], a.q[i], b.q[i])); }
/* Not vmaxq_f32, which returns NaN if either operand is NaN. */
static inline float32x4_t higher(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
static inline float32x4_t lower(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcltq_f32(a, b), a, b);
}
static inline vf vf_max(vf a, vf b) { QUADS(vf, higher(a.q[i], b.q[i])); }
static inline vf vf_min(vf a, vf b) { QUADS(vf, lower(a.q[i], b.q[i])); }
static inline vf vf_round(vf a) { QUADS(vf, vrndnq_f32(a.q[i])); }
static inline vf vf_sqrt(vf a) { QUADS(vf, vsqrtq_f32(a.q[i])); }
static inline vf vf_abs(vf a) { QUADS(vf, vabsq_f32(a.q[i])); }
static inline vf vf_copysign(vf a, vf sign) {
  QUADS(vf, vbslq_f32(vdupq_n_u32(0x7FFFFFFF), a.q[i], sign.q[i]));
}
static inline vf vf_cmp_ge(vf a, vf b) {
  QUADS(vf, vbslq_f32(vcgeq_f32(a.q[i], b.q[i]), vdupq_n_f32(1), vdupq_n_f32(0)));
}

/* Sums and differences of whole registers */
static inline vf hadamard_registers(vf v) {
  vf w = {{vaddq_f32(v.q[0], v.q[2]), vaddq_f32(v.q[1], v.q[3]), vsubq_f32(v.q[0], v.q[2]),
           vsubq_f32(v.q[1], v.q[3])}};
  return (vf){{vaddq_f32(w.q[0], w.q[1]), vsubq_f32(w.q[0], w.q[1]), vaddq_f32(w.q[2], w.q[3]),
               vsubq_f32(w.q[2], w.q[3])}};
}
/* Sums in the first half of the lanes, differences in the second */
static inline float32x4_t hadamard_4(float32x4_t v) {
  float32x4_t swapped = vextq_f32(v, v, 2); /* lanes two apart */
  v = vcombine_f32(vget_low_f32(vaddq_f32(v, swapped)), vget_high_f32(vsubq_f32(swapped, v)));
  swapped = vrev64q_f32(v);
  return vtrn1q_f32(vaddq_f32(v, swapped), vsubq_f32(v, swapped));
}
static inline vf vf_hadamard(vf v) {
  v = hadamard_registers(v);
  QUADS(vf, hadamard_4(v.q[i]));
}

#define FOLD(name, op)                                             \
  static inline float name(vf v) {                                 \
    float32x4_t four = op(op(v.q[0], v.q[2]), op(v.q[1], v.q[3])); \
    float32x4_t two = op(four, vextq_f32(four, four, 2));          \
    return vgetq_lane_f32(op(two, vextq_f32(two, two, 1)), 0);     \
  }
FOLD(vf_hsum, vaddq_f32)
FOLD(vf_hmax, higher)
FOLD(vf_hmin, lower)
#undef FOLD

static inline vi vi_set(i32 x) { QUADS(vi, vdupq_n_s32(x)); }
static inline vi vi_add(vi a, vi b) { QUADS(vi, vaddq_s32(a.q[i], b.q[i])); }
static inline vi vi_sub(vi a, vi b) { QUADS(vi, vsubq_s32(a.q[i], b.q[i])); }
static inline vi vi_mul(vi a, vi b) { QUADS(vi, vmulq_s32(a.q[i], b.q[i])); }
static inline vi vi_or(vi a, vi b) { QUADS(vi, vorrq_s32(a.q[i], b.q[i])); }
static inline vi vi_and(vi a, vi b) { QUADS(vi, vandq_s32(a.q[i], b.q[i])); }
static inline vi vi_shl(vi a, int by) { QUADS(vi, vshlq_s32(a.q[i], vdupq_n_s32(by))); }
static inline vi vi_shr(vi a, int by) {
  QUADS(vi, vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a.q[i]), vdupq_n_s32(-by))));
}
static inline vi vi_cast(vf a) { QUADS(vi, vreinterpretq_s32_f32(a.q[i])); }
static inline vf vf_cast(vi a) { QUADS(vf, vreinterpretq_f32_s32(a.q[i])); }
static inline vf vf_convert(vi a) { QUADS(vf, vcvtq_f32_s32(a.q[i])); }
static inline vi vi_truncate(vf a) { QUADS(vi, vcvtq_s32_f32(a.q[i])); }
static inline i32 vi_hsum(vi v) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(v.q[0], v.q[1]), vaddq_s32(v.q[2], v.q[3])));
}
/* the low 16 bits of eight lanes */
static inline int16x8_t narrow(int32x4_t low, int32x4_t high) {
  return vmovn_high_s32(vmovn_s32(low), high);
}
static inline void vi_store_8(void* p, vi v) {
  int8x8_t low = vmovn_s16(narrow(v.q[0], v.q[1]));
  vst1q_s8(p, vmovn_high_s16(low, narrow(v.q[2], v.q[3])));
}
static inline void vi_store_16(uint16_t* p, vi v) {
  vst1q_u16(p, vreinterpretq_u16_s16(narrow(v.q[0], v.q[1])));
  vst1q_u16(p + 8, vreinterpretq_u16_s16(narrow(v.q[2], v.q[3])));
}

/* Not the builtin: GCC removes a loop that only prefetches, as one without effect. */
static inline void prefetch(const void* p) { __asm__ volatile("prfm pldl1keep, [%0]" : : "r"(p)); }

static inline vx vx_load(const i8* p) { return (vx){{vld1q_s8(p), vld1q_s8(p + 16)}}; }
/* Four partial sums of a block times x */
#ifdef HB_DOT
static inline int32x4_t dot_q4_0(const uint8_t* w, vx x) {
  return HB_DOT_UNSIGNED(HB_DOT_UNSIGNED(vdupq_n_s32(0), low_4(w + 2), x.q[0]), high_4(w + 2),
                         x.q[1]);
}
static inline int32x4_t dot_q8_0(const uint8_t* w, vx x) {
  const i8* quantized = (const i8*)(w + 2);
  return HB_DOT(HB_DOT(vdupq_n_s32(0), vld1q_s8(quantized), x.q[0]), vld1q_s8(quantized + 16),
                x.q[1]);
}
#else
/* Two products each in eight 16-bit sums; 2 * 128 * 127 fits */
static inline int16x8_t two_products(int8x16_t quantized, int8x16_t x) {
  return vmlal_high_s8(vmull_s8(vget_low_s8(quantized), vget_low_s8(x)), quantized, x);
}
static inline int32x4_t dot_q4_0(const uint8_t* w, vx x) {
  int16x8_t low = two_products(vreinterpretq_s8_u8(low_4(w + 2)), x.q[0]);
  int16x8_t high = two_products(vreinterpretq_s8_u8(high_4(w + 2)), x.q[1]);
  return vpaddlq_s16(vaddq_s16(low, high)); /* at most 4 * 15 * 127 */
}
static inline int32x4_t dot_q8_0(const uint8_t* w, vx x) {
  const i8* quantized = (const i8*)(w + 2);
  int16x8_t low = two_products(vld1q_s8(quantized), x.q[0]);
  return vpadalq_s16(vpaddlq_s16(low), two_products(vld1q_s8(quantized + 16), x.q[1]));
}
#endif
#define ROWS(type)                                                                               \
  static inline int32x4_t four_rows_##type(const uint8_t* w, ptrdiff_t stride, vx x) {           \
    return vpaddq_s32(vpaddq_s32(dot_##type(w, x), dot_##type(w + stride, x)),                   \
                      vpaddq_s32(dot_##type(w + 2 * stride, x), dot_##type(w + 3 * stride, x))); \
  }                                                                                              \
  static inline vi vi_rows_##type(const uint8_t* w, ptrdiff_t stride, vx x) {                    \
    QUADS(vi, four_rows_##type(w + 4 * i * stride, stride, x));                                  \
  }
ROWS(q4_0)
ROWS(q8_0)
#undef ROWS

static inline float32x4_t four_f16(const uint8_t* p, ptrdiff_t stride) {
  uint16x4_t v = vdup_n_u16(0);
  v = vld1_lane_u16((const f16*)p, v, 0);
  v = vld1_lane_u16((const f16*)(p + stride), v, 1);
  v = vld1_lane_u16((const f16*)(p + 2 * stride), v, 2);
  v = vld1_lane_u16((const f16*)(p + 3 * stride), v, 3);
  return convert_f16(v);
}
static inline vf vf_gather_f16(const uint8_t* p, ptrdiff_t stride) {
  QUADS(vf, four_f16(p + 4 * i * stride, stride));
}

static inline vf vf_load_u8(const uint8_t* p) {
  uint8x16_t v = vld1q_u8(p);
  uint16x8_t low = vmovl_u8(vget_low_u8(v)), high = vmovl_high_u8(v);
  return (vf){{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low)),
               vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_high_u16(high))}};
}

typedef struct {
  int8x16_t q[4];
} vq;
static inline vq vq_load(const i8* p) { QUADS(vq, vld1q_s8(p + 16 * i)); }
static inline int32x4_t dot_quad(int32x4_t sum, int8x16_t w, int8x16_t x) {
#ifdef HB_DOT
  return HB_DOT(sum, w, x);
#else
  int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
  return vaddq_s32(sum, vpaddq_s32(low, vpaddlq_s16(vmull_high_s8(w, x))));
#endif
}
static inline vi vi_dot_quads(vi sum, vq w, const uint8_t* x) {
  i32 four;
  __builtin_memcpy(&four, x, 4);
  int8x16_t numbers = vreinterpretq_s8_s32(vdupq_n_s32(four));
  QUADS(vi, dot_quad(sum.q[i], w.q[i], numbers));
}

#undef QUADS

static inline void sum_quantized(const i8* q, i16* sums) {
  sums[0] = vaddlvq_s8(vld1q_s8(q));
  sums[1] = vaddlvq_s8(vld1q_s8(q + 16));
}

#include "isa/shared/hsum_four.h"
#include "isa/shared/quads_store.h"
#include "isa/shared/quantized_range.h"

#endif
