/* The primitives of products with packed rows (machine.h's *_r16), on one number at a time; the
 * packed.h of other instruction sets have the same names with the same results. */
#ifndef HALFBYTE_ISA_SCALAR_PACKED_H
#define HALFBYTE_ISA_SCALAR_PACKED_H

#include "isa/scalar/simd.h"

/* Sixteen rows are divided into PARTS that fill a register.
 *
 *   pf, pi  a float, an int32 for each row of a part
 *   pw      a block of 32 values for each row of a part: q[i] are columns 4 i to 4 i + 3 */
typedef vf pf;
typedef vi pi;
typedef struct {
  i8 q[8][16][4];
} pw;

/* The initial sum: minus the offsets of the values in either half of a block; xs are the sums of
 * x's halves */
static inline pi pi_start(const i16* xs, int first, int second) {
  return vi_set(-first * xs[0] - second * xs[1]);
}
static inline pw pw_load_q4_0(const uint8_t* quantized, int part) {
  pw w;
  (void)part;
  for (int i = 0; i < 4 * 16 * 4; i++) {
    w.q[i / 64][i / 4 % 16][i % 4] = quantized[i] & 15;
    w.q[4 + i / 64][i / 4 % 16][i % 4] = (i8)(quantized[i] >> 4);
  }
  return w;
}
static inline pw pw_load_q8_0(const uint8_t* quantized, int part) {
  pw w;
  (void)part;
  __builtin_memcpy(&w, quantized, sizeof(w));
  return w;
}
/* Unsigned values of five and six bits (machine.h's quantized_5, quantized_6) */
static inline pw pw_load_5(const uint8_t* quantized, int part) {
  pw w = pw_load_q4_0(quantized, part);
  for (int i = 0; i < 8 * 16 * 4; i++) {
    w.q[i / 64][i / 4 % 16][i % 4] |= (i8)((quantized[256 + i % 64] >> i / 64 & 1) << 4);
  }
  return w;
}
static inline pw pw_load_6(const uint8_t* quantized, int part) {
  pw w = pw_load_q4_0(quantized, part);
  for (int i = 0; i < 8 * 16 * 4; i++) {
    int high = quantized[256 + i / 256 * 64 + i % 64] >> 2 * (i / 64 % 4) & 3;
    w.q[i / 64][i / 4 % 16][i % 4] |= (i8)(high << 4);
  }
  return w;
}
/* Values of `table` for 64 bytes of codes: those of the low four bits, and, 256 bytes further,
 * those of the high ones */
static inline void look_up(i8* to, const uint8_t* codes, const i8* table) {
  for (int i = 0; i < 64; i++) {
    to[i] = table[codes[i] & 15];
    to[256 + i] = table[codes[i] >> 4];
  }
}
/* sum + the products of four columns */
static inline pi dot_four(pi sum, const i8 quantized[16][4], const i8* x) {
  for (int row = 0; row < 16; row++) {
    for (int i = 0; i < 4; i++) {
      sum.l[row] += quantized[row][i] * x[i];
    }
  }
  return sum;
}
/* The values of Q4_0 that `dot_four` takes */
#define QUANTIZED_OF(w, i) w.q[i]

/* pi_dot_<format>(w, x, start): start + the sums of products; pi_dot_half: for the first or the
 * second 16 columns; pi_dot_half_q8_0: the same for values of Q8_0 */
#include "isa/shared/fours.h"
/* pf_scales(d, part): the scales of a part; pf_load(p), pf_zero(): floats of a part, zeros;
 * pf_add_scaled(sum, v, by): sum + v * by; pf_add_product(sum, scale, by, dots): sum + (scale * by)
 * * dots; pf_store_sum(p, r, v): stores r + v, or v if r is NULL */
#include "isa/shared/whole.h"

#include "isa/shared/dots.h"
#include "isa/shared/dots_of_fours.h"

#endif
