/* IEEE binary16 in integer arithmetic, for instruction sets without conversions */
#ifndef HALFBYTE_ISA_SHARED_F16_H
#define HALFBYTE_ISA_SHARED_F16_H

#include "machine.h"

static inline i32 bits_of(float x) {
  union {
    float f;
    i32 i;
  } u = {x};
  return u.i;
}
static inline float of_bits(i32 x) {
  union {
    i32 i;
    float f;
  } u = {x};
  return u.f;
}

static inline float f16_to_f32(f16 h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7FFF;
  if (rest >= 0x7C00) {
    uint32_t quiet = rest > 0x7C00 ? 0x400000 : 0;
    return of_bits((i32)(sign | 0x7F800000 | (rest & 0x3FF) << 13 | quiet));
  }
  if (rest < 0x400) { /* subnormal: rest * 2^-24, exact */
    return of_bits((i32)(sign | (uint32_t)bits_of((float)rest * 0x1p-24f)));
  }
  return of_bits((i32)(sign | (rest + 0x1C000) << 13));
}
/* rounded to nearest, ties to even */
static inline f16 f32_to_f16(float x) {
  uint32_t bits = (uint32_t)bits_of(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
  if (rest > 0x7F800000) {
    return (f16)(sign | 0x7E00 | (rest >> 13 & 0x3FF));
  }
  if (rest >= 0x477FF000) { /* 65520 and more */
    return (f16)(sign | 0x7C00);
  }
  if (rest < 0x38800000) { /* subnormal: the float adder rounds at 2^-24 */
    return (f16)(sign | (uint32_t)(bits_of(of_bits((i32)rest) + 0.5f) - bits_of(0.5f)));
  }
  return (f16)(sign | (rest - 0x38000000 + 0xFFF + (rest >> 13 & 1)) >> 13);
}

#endif
