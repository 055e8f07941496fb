/* The primitives of packed_scalar.h, eight rows in a register; described there. */
#ifndef HALFBYTE_PACKED_AVX2_H
#define HALFBYTE_PACKED_AVX2_H

#include "simd_avx2.h"

enum { TILE_PARTS = 1, ROW_PARTS = 1, PARTS = 2, COLUMNS = 4, TOGETHER = 1, PEAK = 8 };
typedef __m256 pf;
typedef __m256i pi;
typedef struct {
  __m256i q[8];
} pw;

static inline __m256i load_32(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
static inline pi pi_start(const i32* xs, int offset) { return _mm256_set1_epi32(-offset * *xs); }
static inline pw pw_load_q4_0(const uint8_t* codes, int part) {
  pw w;
  UNROLL for (int i = 0; i < 4; i++) {
    __m256i both = load_32(codes + 64 * i + 32 * part), mask = _mm256_set1_epi8(15);
    w.q[i] = _mm256_and_si256(both, mask);
    w.q[4 + i] = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
  }
  return w;
}
static inline pw pw_load_q8_0(const uint8_t* codes, int part) {
  pw w;
  UNROLL for (int i = 0; i < 8; i++) {
    w.q[i] = load_32(codes + 64 * i + 32 * part);
#ifdef HB_DPBUSD
    w.q[i] = _mm256_xor_si256(w.q[i], _mm256_set1_epi8(-128)); /* by HB_Q8_0_OFFSET */
#endif
  }
  return w;
}
static inline __m256i four_of(const i8* x) {
  i32 four;
  __builtin_memcpy(&four, x, 4);
  return _mm256_set1_epi32(four);
}
#ifdef HB_DPBUSD
static inline pi dot_four(pi sum, __m256i codes, const i8* x) {
  return HB_DPBUSD(sum, codes, four_of(x));
}
static inline pi dot_unsigned(const pw* w, const i8* x, pi start) {
  pi sum = start;
  UNROLL for (int i = 0; i < 8; i++) { sum = dot_four(sum, w->q[i], x + 4 * i); }
  return sum;
}
static inline pi pi_dot_q4_0(const pw* w, const i8* x, pi start) {
  return dot_unsigned(w, x, start);
}
static inline pi pi_dot_q8_0(const pw* w, const i8* x, pi start) {
  return dot_unsigned(w, x, start);
}
#else
static inline pi dot_four(pi sum, __m256i codes, const i8* x) {
  __m256i pairs = _mm256_maddubs_epi16(codes, four_of(x));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline pi pi_dot_q4_0(const pw* w, const i8* x, pi start) {
  pi sum = _mm256_setzero_si256(); /* at most 16 * 15 * 127 in 16 bits */
  UNROLL for (int i = 0; i < 8; i++) {
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w->q[i], four_of(x + 4 * i)));
  }
  return _mm256_add_epi32(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)), start);
}
static inline pi pi_dot_q8_0(const pw* w, const i8* x, pi start) {
  pi sum = start, one = _mm256_set1_epi16(1);
  UNROLL for (int i = 0; i < 8; i++) {
    __m256i sized = _mm256_sign_epi8(four_of(x + 4 * i), w->q[i]);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w->q[i]), sized);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, one));
  }
  return sum;
}
#endif
#define CODES_OF(w, i) w.q[i]
static inline pf pf_zero(void) { return _mm256_setzero_ps(); }
static inline pf pf_scales(const f16* d, int part) {
  return _mm256_cvtph_ps(load_16(d + 8 * part));
}
static inline pf pf_add_product(pf sum, pf scale, float by, pi dots) {
  __m256 scaled = _mm256_mul_ps(scale, _mm256_set1_ps(by));
  return _mm256_add_ps(sum, _mm256_mul_ps(scaled, _mm256_cvtepi32_ps(dots)));
}
static inline void pf_store(float* p, const float* r, pf v) {
  _mm256_storeu_ps(p, r ? _mm256_add_ps(_mm256_loadu_ps(r), v) : v);
}

#endif
