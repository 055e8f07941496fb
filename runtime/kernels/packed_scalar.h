/* The primitives of products with packed rows (machine.h's *_r16), on one number at a time; the
 * other packed_<isa>.h have the same names with the same results. */
#ifndef HALFBYTE_PACKED_SCALAR_H
#define HALFBYTE_PACKED_SCALAR_H

#include "simd_scalar.h"

/* Sixteen rows fall into PARTS that fill a register of the instruction set. Products of TILE_PARTS
 * parts and COLUMNS rows of activations are summed up side by side, TOGETHER of the columns in one
 * step; of a single row's products ROW_PARTS are made in one step. PEAK is how many the benchmark
 * takes.
 *
 *   pf, pi  a float, an int32 of each row of a part
 *   pw      a block of 32 codes of each row of a part: q[i] are those of columns 4 i to 4 i + 3
 */
enum { TILE_PARTS = 1, ROW_PARTS = 1, PARTS = 1, COLUMNS = 1, TOGETHER = 1, PEAK = 8 };
typedef vf pf;
typedef vi pi;
typedef struct {
  i8 q[8][16][4];
} pw;

/* What codes of either half of a block are too high by, taken out; xs are the sums of x's halves */
static inline pi pi_start(const i16* xs, int first, int second) {
  return vi_set(-first * xs[0] - second * xs[1]);
}
static inline pw pw_load_q4_0(const uint8_t* codes, int part) {
  pw w;
  (void)part;
  for (int i = 0; i < 4 * 16 * 4; i++) {
    w.q[i / 64][i / 4 % 16][i % 4] = codes[i] & 15;
    w.q[4 + i / 64][i / 4 % 16][i % 4] = (i8)(codes[i] >> 4);
  }
  return w;
}
static inline pw pw_load_q8_0(const uint8_t* codes, int part) {
  pw w;
  (void)part;
  __builtin_memcpy(&w, codes, sizeof(w));
  return w;
}
/* Codes of five and of six bits (machine.h's codes_5, codes_6), unsigned */
static inline pw pw_load_5(const uint8_t* codes, int part) {
  pw w = pw_load_q4_0(codes, part);
  for (int i = 0; i < 8 * 16 * 4; i++) {
    w.q[i / 64][i / 4 % 16][i % 4] |= (i8)((codes[256 + i % 64] >> i / 64 & 1) << 4);
  }
  return w;
}
static inline pw pw_load_6(const uint8_t* codes, int part) {
  pw w = pw_load_q4_0(codes, part);
  for (int i = 0; i < 8 * 16 * 4; i++) {
    int high = codes[256 + i / 256 * 64 + i % 64] >> 2 * (i / 64 % 4) & 3;
    w.q[i / 64][i / 4 % 16][i % 4] |= (i8)(high << 4);
  }
  return w;
}
/* sum + the products of four columns */
static inline pi dot_four(pi sum, const i8 codes[16][4], const i8* x) {
  for (int row = 0; row < 16; row++) {
    for (int i = 0; i < 4; i++) {
      sum.l[row] += codes[row][i] * x[i];
    }
  }
  return sum;
}
/* start + the products' sums */
static inline pi pi_dot_q8_0(const pw* w, const i8* x, pi start) {
  pi sum = start;
  for (int i = 0; i < 8; i++) {
    sum = dot_four(sum, w->q[i], x + 4 * i);
  }
  return sum;
}
static inline pi pi_dot_q4_0(const pw* w, const i8* x, pi start) {
  return pi_dot_q8_0(w, x, start);
}
static inline pi pi_dot_5(const pw* w, const i8* x, pi start) { return pi_dot_q8_0(w, x, start); }
/* start + the products' sums of the first or the second 16 columns */
static inline pi pi_dot_half(const pw* w, int half, const i8* x, pi start) {
  pi sum = start;
  for (int i = 4 * half; i < 4 * half + 4; i++) {
    sum = dot_four(sum, w->q[i], x + 4 * i);
  }
  return sum;
}
/* Codes of Q4_0 that `dot_four` takes */
#define CODES_OF(w, i) w.q[i]
static inline pf pf_zero(void) { return vf_set(0); }
static inline pf pf_scales(const f16* d, int part) {
  (void)part;
  return vf_load_f16(d);
}
static inline pf pf_load(const float* p) { return vf_load(p); }
/* sum + v * by */
static inline pf pf_add_scaled(pf sum, pf v, float by) {
  return vf_add(sum, vf_mul(v, vf_set(by)));
}
/* sum + (scale * by) * dots */
static inline pf pf_add_product(pf sum, pf scale, float by, pi dots) {
  return vf_add(sum, vf_mul(vf_mul(scale, vf_set(by)), vf_convert(dots)));
}
/* r + v, or v where r is NULL */
static inline void pf_store(float* p, const float* r, pf v) {
  vf_store(p, r ? vf_add(vf_load(r), v) : v);
}

#endif
