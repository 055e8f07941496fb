/* The primitives of isa/scalar/packed.h, all sixteen rows in a vector; described there. */
#ifndef HALFBYTE_ISA_VECTORS_PACKED_H
#define HALFBYTE_ISA_VECTORS_PACKED_H

#include "isa/vectors/simd.h"

typedef vf pf;
typedef vi pi;
typedef struct {
  bytes_64 q[8];
} pw;

static inline pi pi_start(const i16* xs, int first, int second) {
  return vi_set(-first * xs[0] - second * xs[1]);
}
static inline pw pw_load_q4_0(const uint8_t* quantized, int part) {
  pw w;
  (void)part;
  for (int i = 0; i < 4; i++) {
    bytes_64 both = load_64(quantized + 64 * i);
    w.q[i] = both & 15;
    w.q[4 + i] = both >> 4 & 15;
  }
  return w;
}
static inline pw pw_load_q8_0(const uint8_t* quantized, int part) {
  pw w;
  (void)part;
  for (int i = 0; i < 8; i++) {
    w.q[i] = load_64(quantized + 64 * i);
  }
  return w;
}
static inline pw pw_load_5(const uint8_t* quantized, int part) {
  pw w = pw_load_q4_0(quantized, part);
  bytes_64 high = load_64(quantized + 256);
  for (int i = 0; i < 8; i++) {
    w.q[i] |= (high >> (i8)i & 1) << 4;
  }
  return w;
}
static inline pw pw_load_6(const uint8_t* quantized, int part) {
  pw w = pw_load_q4_0(quantized, part);
  for (int i = 0; i < 8; i++) {
    w.q[i] |= (load_64(quantized + 256 + 64 * (i / 4)) >> (i8)(2 * (i % 4)) & 3) << 4;
  }
  return w;
}
static inline void look_up(i8* to, const uint8_t* codes, const i8* table) {
  for (int i = 0; i < 64; i++) {
    to[i] = table[codes[i] & 15];
    to[256 + i] = table[codes[i] >> 4];
  }
}
static inline pi dot_four(pi sum, bytes_64 quantized, const i8* x) {
  for (int i = 0; i < 64; i++) {
    sum[i / 4] += quantized[i] * x[i % 4];
  }
  return sum;
}
#define QUANTIZED_OF(w, i) w.q[i]

#include "isa/shared/fours.h"
#include "isa/shared/whole.h"

#include "isa/shared/dots.h"
#include "isa/shared/dots_of_fours.h"

#endif
