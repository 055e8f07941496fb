/* Products with rows in the file's order, on 256 bits: shared by the instruction sets of x86.
 *
 * HB_DPBUSD is a dot product of unsigned and signed bytes, if there is one. */
#ifndef HALFBYTE_ISA_SHARED_ROWS_X86_H
#define HALFBYTE_ISA_SHARED_ROWS_X86_H

#include <immintrin.h>

#include "machine.h"

typedef struct {
  __m256i q;
} vx;

static inline __m128i load_16(const void* p) { return _mm_loadu_si128((const __m128i*)p); }

/* Not the intrinsic: GCC removes a loop that only prefetches, as one without effect. */
static inline void prefetch(const void* p) {
  __asm__ volatile("prefetcht0 %0" : : "m"(*(const char*)p));
}

static inline float f16_to_f32(f16 h) { return _cvtsh_ss(h); }
static inline f16 f32_to_f16(float x) { return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT); }

/* [sum of a, b, c, d], each folded in the order of vf_hsum */
static inline __m128 fold_four(__m256 a, __m256 b, __m256 c, __m256 d) {
  __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
  /* in either half the first two of a, c; of b, d; then the others */
  __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xEE));
  __m256 one = _mm256_add_ps(two, _mm256_movehdup_ps(two)); /* sums in lanes 0, 2; 4, 6 */
  __m128 ac = _mm256_castps256_ps128(one), bd = _mm256_extractf128_ps(one, 1);
  __m128 mixed = _mm_unpacklo_ps(ac, bd), other = _mm_unpackhi_ps(ac, bd);
  return _mm_movelh_ps(mixed, other);
}
static inline void sum_quantized(const i8* q, i16* sums) {
  __m256i quantized = _mm256_loadu_si256((const __m256i*)q);
  __m256i raised = _mm256_xor_si256(quantized, _mm256_set1_epi8(-128)); /* each plus 128 */
  __m256i eights = _mm256_sad_epu8(raised, _mm256_setzero_si256());
  __m256i all = _mm256_add_epi32(eights, _mm256_shuffle_epi32(eights, 0x4E));
  sums[0] = (i16)(_mm256_cvtsi256_si32(all) - 16 * 128);
  sums[1] = (i16)(_mm_cvtsi128_si32(_mm256_extracti128_si256(all, 1)) - 16 * 128);
}

static inline vx vx_load(const i8* p) { return (vx){_mm256_loadu_si256((const __m256i*)p)}; }
/* Four partial sums each of the blocks at `w` (low half) and four rows further on (high half) */
static inline __m256i two_rows_q4_0(const uint8_t* w, ptrdiff_t stride, __m256i low_x,
                                    __m256i high_x) {
  __m256i mask = _mm256_set1_epi8(15);
  __m256i quantized = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(w + 2)),
                                              load_16(w + 4 * stride + 2), 1);
  __m256i low = _mm256_and_si256(quantized, mask);
  __m256i high = _mm256_and_si256(_mm256_srli_epi16(quantized, 4), mask);
#ifdef HB_DPBUSD
  __m256i zero = _mm256_setzero_si256();
  return HB_DPBUSD(HB_DPBUSD(zero, low, low_x), high, high_x);
#else
  /* at most 4 * 15 * 127 in 16 bits */
  __m256i sums =
      _mm256_add_epi16(_mm256_maddubs_epi16(low, low_x), _mm256_maddubs_epi16(high, high_x));
  return _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
#endif
}
static inline __m256i eight_rows_q4_0(const uint8_t* w, ptrdiff_t stride, vx x) {
  __m256i low = _mm256_permute2x128_si256(x.q, x.q, 0x00);
  __m256i high = _mm256_permute2x128_si256(x.q, x.q, 0x11);
  __m256i first = _mm256_hadd_epi32(two_rows_q4_0(w, stride, low, high),
                                    two_rows_q4_0(w + stride, stride, low, high));
  __m256i second = _mm256_hadd_epi32(two_rows_q4_0(w + 2 * stride, stride, low, high),
                                     two_rows_q4_0(w + 3 * stride, stride, low, high));
  return _mm256_hadd_epi32(first, second);
}
static inline __m256i one_row_q8_0(const uint8_t* w, vx x) {
  __m256i quantized = _mm256_loadu_si256((const __m256i*)(w + 2));
#ifdef HB_DPBUSD
  __m256i shifted = _mm256_xor_si256(quantized, _mm256_set1_epi8(-128)); /* plus 128 */
  return HB_DPBUSD(_mm256_setzero_si256(), shifted, x.q);
#else
  /* |w| is unsigned, so that -128 is right; 2 * 128 * 127 fits in 16 bits */
  __m256i sums = _mm256_maddubs_epi16(_mm256_abs_epi8(quantized), _mm256_sign_epi8(x.q, quantized));
  return _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
#endif
}
/* Half of the sum of each of four rows in either half of the result */
static inline __m256i four_rows_q8_0(const uint8_t* w, ptrdiff_t stride, vx x) {
  return _mm256_hadd_epi32(
      _mm256_hadd_epi32(one_row_q8_0(w, x), one_row_q8_0(w + stride, x)),
      _mm256_hadd_epi32(one_row_q8_0(w + 2 * stride, x), one_row_q8_0(w + 3 * stride, x)));
}
static inline __m256i eight_rows_q8_0(const uint8_t* w, ptrdiff_t stride, vx x) {
  __m256i a = four_rows_q8_0(w, stride, x), b = four_rows_q8_0(w + 4 * stride, stride, x);
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                          _mm256_permute2x128_si256(a, b, 0x31));
}
static inline __m256 gather_8_f16(const uint8_t* p, ptrdiff_t stride) {
  __m128i v = _mm_setzero_si128();
#define LANE(i) v = _mm_insert_epi16(v, *(const f16*)(p + i * stride), i)
  LANE(0);
  LANE(1);
  LANE(2);
  LANE(3);
  LANE(4);
  LANE(5);
  LANE(6);
  LANE(7);
#undef LANE
  return _mm256_cvtph_ps(v);
}

#endif
