/* The primitives of isa/scalar/packed.h, four rows in a register; described there */
#ifndef HALFBYTE_ISA_NEON_PACKED_H
#define HALFBYTE_ISA_NEON_PACKED_H

#include "isa/neon/simd.h"

typedef float32x4_t pf;
typedef int32x4_t pi;
typedef struct {
  int8x16_t q[8];
} pw;

static inline pi pi_start(const i16* xs, int first, int second) {
  return vdupq_n_s32(-first * xs[0] - second * xs[1]);
}
static inline pw pw_load_q4_0(const uint8_t* quantized, int part) {
  pw w;
  UNROLL for (int i = 0; i < 4; i++) {
    w.q[i] = vreinterpretq_s8_u8(low_4(quantized + 64 * i + 16 * part));
    w.q[4 + i] = vreinterpretq_s8_u8(high_4(quantized + 64 * i + 16 * part));
  }
  return w;
}
static inline pw pw_load_q8_0(const uint8_t* quantized, int part) {
  pw w;
  UNROLL for (int i = 0; i < 8; i++) {
    w.q[i] = vreinterpretq_s8_u8(vld1q_u8(quantized + 64 * i + 16 * part));
  }
  return w;
}
static inline void look_up(i8* to, const uint8_t* codes, const i8* table) {
  int8x16_t values = vld1q_s8(table);
  UNROLL for (int i = 0; i < 64; i += 16) {
    vst1q_s8(to + i, vqtbl1q_s8(values, low_4(codes + i)));
    vst1q_s8(to + i + 256, vqtbl1q_s8(values, high_4(codes + i)));
  }
}
typedef uint8x16_t pb;
enum { LOW_CODES = 0, OFFSET_15 = 0, OFFSET_63 = 0, OFFSET_127 = 0 };
static inline pb pb_load(const uint8_t* p) { return vld1q_u8(p); }
static inline pb pb_set(int i) { return vdupq_n_u8((uint8_t)i); }
static inline pb pb_shift(pb v, int n) { return v >> (uint8_t)n; }
static inline pb pb_table(const i8* table, int offset) {
  (void)offset;
  return vreinterpretq_u8_s8(vld1q_s8(table));
}
static inline pb pb_look_up(pb table, pb codes) { return vqtbl1q_u8(table, codes); }
/* The bits of columns 4 i to 4 i + 3 from the fourth on, for five and six bits */
static inline uint8x16_t moved(uint8x16_t bits, int left) {
  return vshlq_u8(bits, vdupq_n_s8((i8)left));
}
static inline int8x16_t with_high(int8x16_t low, uint8x16_t high, int left, uint8_t mask) {
  uint8x16_t bits = vandq_u8(moved(high, left), vdupq_n_u8(mask));
  return vorrq_s8(low, vreinterpretq_s8_u8(bits));
}
static inline pw pw_load_5(const uint8_t* quantized, int part) {
  pw w = pw_load_q4_0(quantized, part);
  uint8x16_t high = vld1q_u8(quantized + 256 + 16 * part);
  UNROLL for (int i = 0; i < 8; i++) { w.q[i] = with_high(w.q[i], high, 4 - i, 16); }
  return w;
}
static inline pw pw_load_6(const uint8_t* quantized, int part) {
  pw w = pw_load_q4_0(quantized, part);
  UNROLL for (int i = 0; i < 8; i++) {
    uint8x16_t high = vld1q_u8(quantized + 256 + 64 * (i / 4) + 16 * part);
    w.q[i] = with_high(w.q[i], high, 4 - 2 * (i % 4), 48);
  }
  return w;
}
static inline int8x16_t four_of(const i8* x) {
  i32 four;
  __builtin_memcpy(&four, x, 4);
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}
#ifdef HB_DOT
static inline pi dot_four(pi sum, int8x16_t quantized, const i8* x) {
  return HB_DOT(sum, quantized, four_of(x));
}
static inline pi pi_dot_q8_0(const pw* w, const i8* x, pi start) {
  pi sum = start;
  int8x16_t low = vld1q_s8(x), high = vld1q_s8(x + 16);
  sum = vdotq_laneq_s32(sum, w->q[0], low, 0);
  sum = vdotq_laneq_s32(sum, w->q[1], low, 1);
  sum = vdotq_laneq_s32(sum, w->q[2], low, 2);
  sum = vdotq_laneq_s32(sum, w->q[3], low, 3);
  sum = vdotq_laneq_s32(sum, w->q[4], high, 0);
  sum = vdotq_laneq_s32(sum, w->q[5], high, 1);
  sum = vdotq_laneq_s32(sum, w->q[6], high, 2);
  return vdotq_laneq_s32(sum, w->q[7], high, 3);
}
static inline pi pi_dot_q4_0(const pw* w, const i8* x, pi start) {
  return pi_dot_q8_0(w, x, start);
}
static inline pi pi_dot_5(const pw* w, const i8* x, pi start) { return pi_dot_q8_0(w, x, start); }
static inline pi pi_dot_half(const pw* w, int half, const i8* x, pi start) {
  int8x16_t numbers = vld1q_s8(x + 16 * half);
  pi sum = vdotq_laneq_s32(start, w->q[4 * half], numbers, 0);
  sum = vdotq_laneq_s32(sum, w->q[4 * half + 1], numbers, 1);
  sum = vdotq_laneq_s32(sum, w->q[4 * half + 2], numbers, 2);
  return vdotq_laneq_s32(sum, w->q[4 * half + 3], numbers, 3);
}
#define pi_dot_half_q8_0 pi_dot_half
#include "isa/shared/rows_alike.h"
#else
/* for codes_rows.inc */
enum { APART_63 = 0, APART_127 = 1, TWOS_AS_FOURS = 0 };
#define pi_dot_half_3 pi_dot_half
#define pi_dot_half_31 pi_dot_half
#define pi_dot_half_127 pi_dot_half
#define pi_dot_half_255 pi_dot_half_q8_0
/* Adds up a row's two pairs of products in either half */
static inline pi fold_pairs(int16x8_t low, int16x8_t high) {
  return vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high));
}
static inline pi dot_four(pi sum, int8x16_t quantized, const i8* x) {
  int8x16_t four = four_of(x);
  int16x8_t low = vmull_s8(vget_low_s8(quantized), vget_low_s8(four));
  return vaddq_s32(sum, fold_pairs(low, vmull_high_s8(quantized, four)));
}
/* Columns 4 first to 4 last - 1; 16 bits hold 8 * 31 * 127, and 4 * 63 * 127 */
INLINE pi dot_small(const pw* w, int first, int last, const i8* x, pi start) {
  int16x8_t low = vdupq_n_s16(0), high = vdupq_n_s16(0);
  UNROLL for (int i = first; i < last; i++) {
    int8x16_t four = four_of(x + 4 * i);
    low = vmlal_s8(low, vget_low_s8(w->q[i]), vget_low_s8(four));
    high = vmlal_high_s8(high, w->q[i], four);
  }
  return vaddq_s32(fold_pairs(low, high), start);
}
static inline pi pi_dot_q4_0(const pw* w, const i8* x, pi start) {
  return dot_small(w, 0, 8, x, start);
}
static inline pi pi_dot_5(const pw* w, const i8* x, pi start) {
  return dot_small(w, 0, 8, x, start);
}
static inline pi pi_dot_half(const pw* w, int half, const i8* x, pi start) {
  return dot_small(w, 4 * half, 4 * half + 4, x, start);
}
INLINE pi dot_signed(const pw* w, int first, int last, const i8* x, pi start) {
  pi low = vdupq_n_s32(0), high = vdupq_n_s32(0);
  UNROLL for (int i = first; i < last; i += 2) { /* 2 * 128 * 127 fits into 16 bits */
    int8x16_t a = four_of(x + 4 * i), b = four_of(x + 4 * i + 4);
    int16x8_t first_pair = vmull_s8(vget_low_s8(w->q[i]), vget_low_s8(a));
    low = vpadalq_s16(low, vmlal_s8(first_pair, vget_low_s8(w->q[i + 1]), vget_low_s8(b)));
    high = vpadalq_s16(high, vmlal_high_s8(vmull_high_s8(w->q[i], a), w->q[i + 1], b));
  }
  return vaddq_s32(vpaddq_s32(low, high), start);
}
static inline pi pi_dot_q8_0(const pw* w, const i8* x, pi start) {
  return dot_signed(w, 0, 8, x, start);
}
static inline pi pi_dot_half_q8_0(const pw* w, int half, const i8* x, pi start) {
  return dot_signed(w, 4 * half, 4 * half + 4, x, start);
}
#endif
#ifdef HB_MATRIX
/* Two rows of eight weights times two rows of eight activations, four sums per instruction; columns
 * 8 first to 8 last - 1 */
INLINE void matrix_dots(pi* dots, const pw* w, int first, int last, const i8* x, int64_t stride,
                        const pi* starts) {
  pi upper = vdupq_n_s32(0), lower = vdupq_n_s32(0); /* both columns of rows 0 and 1; of 2 and 3 */
  UNROLL for (int i = first; i < last; i++) {
    int32x4_t even = vreinterpretq_s32_s8(w->q[2 * i]);
    int32x4_t odd = vreinterpretq_s32_s8(w->q[2 * i + 1]);
    int8x16_t both = vcombine_s8(vld1_s8(x + 8 * i), vld1_s8(x + stride + 8 * i));
    upper = HB_MATRIX(upper, vreinterpretq_s8_s32(vzip1q_s32(even, odd)), both);
    lower = HB_MATRIX(lower, vreinterpretq_s8_s32(vzip2q_s32(even, odd)), both);
  }
  dots[0] = vaddq_s32(vuzp1q_s32(upper, lower), starts[0]);
  dots[1] = vaddq_s32(vuzp2q_s32(upper, lower), starts[1]);
}
INLINE void pi_dots_q8_0(pi* dots, const pw* w, int parts, const i8* x, int64_t stride, int columns,
                         const pi* starts) {
  (void)parts; /* one */
  if (columns == 1) {
    dots[0] = pi_dot_q8_0(w, x, starts[0]);
  } else {
    matrix_dots(dots, w, 0, 4, x, stride, starts);
  }
}
#define pi_dots_q4_0 pi_dots_q8_0
#define pi_dots_5 pi_dots_q8_0
INLINE void pi_dots_half(pi* dots, const pw* w, int parts, int half, const i8* x, int64_t stride,
                         int columns, const pi* starts) {
  (void)parts;
  if (columns == 1) {
    dots[0] = pi_dot_half(w, half, x, starts[0]);
  } else {
    matrix_dots(dots, w, 2 * half, 2 * half + 2, x, stride, starts);
  }
}
#define pi_dots_half_q8_0 pi_dots_half
#else
#include "isa/shared/dots.h"
#endif
#define QUANTIZED_OF(w, i) w.q[i]
#include "isa/shared/codes.h"
static inline pf pf_zero(void) { return vdupq_n_f32(0); }
static inline pf pf_scales(const f16* d, int part) { return convert_f16(vld1_u16(d + 4 * part)); }
static inline pf pf_load(const float* p) { return vld1q_f32(p); }
static inline pf pf_add_scaled(pf sum, pf v, float by) {
  return vaddq_f32(sum, vmulq_n_f32(v, by));
}
static inline pf pf_scaled(pf scale, pi dots) { return vmulq_f32(scale, vcvtq_f32_s32(dots)); }
static inline pf pf_add_product(pf sum, pf scale, float by, pi dots) {
  return vaddq_f32(sum, vmulq_f32(vmulq_n_f32(scale, by), vcvtq_f32_s32(dots)));
}
static inline pf pf_set(float x) { return vdupq_n_f32(x); }
static inline pf pf_add(pf a, pf b) { return vaddq_f32(a, b); }
static inline pf pf_max(pf a, pf b) { return higher(a, b); }
static inline pf pf_fma(pf a, pf b, pf c) { return vfmaq_f32(c, a, b); }
static inline pf pf_mul_add(pf a, pf b, pf c) { return vaddq_f32(c, vmulq_f32(a, b)); }
static inline void pf_store(float* p, pf v) { vst1q_f32(p, v); }
static inline void pf_store_sum(float* p, const float* r, pf v) {
  vst1q_f32(p, r ? vaddq_f32(vld1q_f32(r), v) : v);
}

#include "isa/shared/dots_of_fours.h"

#endif
