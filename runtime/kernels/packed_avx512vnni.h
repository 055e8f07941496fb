/* The primitives of packed_scalar.h, all sixteen rows in a register; described there. */
#ifndef HALFBYTE_PACKED_AVX512VNNI_H
#define HALFBYTE_PACKED_AVX512VNNI_H

#include "simd_avx512vnni.h"

enum { TILE_PARTS = 1, ROW_PARTS = 1, PARTS = 1, COLUMNS = 16, TOGETHER = 2, PEAK = 8 };
typedef __m512 pf;
typedef __m512i pi;
typedef struct {
  __m512i q[8];
} pw;

static inline pi pi_start(const i16* xs, int first, int second) {
  return _mm512_set1_epi32(first == second ? -first * (xs[0] + xs[1])
                                           : -first * xs[0] - second * xs[1]);
}
static inline pw pw_load_q4_0(const uint8_t* codes, int part) {
  pw w;
  (void)part;
  UNROLL for (int i = 0; i < 4; i++) {
    __m512i both = _mm512_loadu_si512(codes + 64 * i), mask = _mm512_set1_epi8(15);
    w.q[i] = _mm512_and_si512(both, mask);
    w.q[4 + i] = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
  }
  return w;
}
static inline pw pw_load_q8_0(const uint8_t* codes, int part) {
  pw w;
  (void)part;
  UNROLL for (int i = 0; i < 8; i++) {
    w.q[i] = _mm512_xor_si512(_mm512_loadu_si512(codes + 64 * i), _mm512_set1_epi8(-128));
  }
  return w;
}
static inline __m512i moved(__m512i bits, int left) {
  return left < 0 ? _mm512_srli_epi16(bits, (unsigned)-left)
                  : _mm512_slli_epi16(bits, (unsigned)left);
}
static inline pw pw_load_5(const uint8_t* codes, int part) {
  pw w = pw_load_q4_0(codes, part);
  __m512i high = _mm512_loadu_si512(codes + 256), mask = _mm512_set1_epi8(16);
  UNROLL for (int i = 0; i < 8; i++) {
    w.q[i] = _mm512_or_si512(w.q[i], _mm512_and_si512(moved(high, 4 - i), mask));
  }
  return w;
}
static inline pw pw_load_6(const uint8_t* codes, int part) {
  pw w = pw_load_q4_0(codes, part);
  UNROLL for (int i = 0; i < 8; i++) {
    __m512i high = _mm512_loadu_si512(codes + 256 + 64 * (i / 4)), mask = _mm512_set1_epi8(48);
    w.q[i] = _mm512_or_si512(w.q[i], _mm512_and_si512(moved(high, 4 - 2 * (i % 4)), mask));
  }
  return w;
}
static inline pi dot_four(pi sum, __m512i codes, const i8* x) {
  i32 four;
  __builtin_memcpy(&four, x, 4);
  return _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(four));
}
#define CODES_OF(w, i) w.q[i]

#include "packed_fours.h"
#include "packed_whole.h"

#endif
