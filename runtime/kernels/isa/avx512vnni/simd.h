/* The primitives of isa/scalar/simd.h on AVX-512 with VNNI (since Cascade Lake and Zen 4), sixteen
 * lanes in a register; described there */
#ifndef HALFBYTE_ISA_AVX512VNNI_SIMD_H
#define HALFBYTE_ISA_AVX512VNNI_SIMD_H

/* It is exact: four products of 255 * 127 fit into 32 bits. */
#define HB_DPBUSD _mm256_dpbusd_epi32
#include "isa/shared/rows_x86.h"

typedef __m512 vf;
typedef __m512i vi;

static inline vf vf_set(float x) { return _mm512_set1_ps(x); }
static inline vf vf_load(const float* p) { return _mm512_loadu_ps(p); }
static inline __m256i load_32(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
static inline vf vf_load_f16(const f16* p) { return _mm512_cvtph_ps(load_32(p)); }
static inline vf vf_load_bf16(const bf16* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_32(p)), 16));
}
static inline vf convert_i8(__m128i v) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v)); }
static inline vf vf_load_i8(const i8* p) { return convert_i8(load_16(p)); }
/* The low four bits of each lane: a permutation takes no others */
static inline vf from_low4(__m512i v) {
  vf numbers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_permutexvar_ps(v, numbers);
}
static inline vf vf_load_low4(const uint8_t* p) {
  return from_low4(_mm512_cvtepu8_epi32(load_16(p)));
}
static inline vf vf_load_high4(const uint8_t* p) {
  return from_low4(_mm512_srli_epi32(_mm512_cvtepu8_epi32(load_16(p)), 4));
}
static inline void vf_store(float* p, vf v) { _mm512_storeu_ps(p, v); }
static inline void vf_store_f16(f16* p, vf v) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline __mmask16 mask_of(int64_t count) { return (__mmask16)((1u << count) - 1); }
static inline vf vf_load_part(const float* p, int64_t count) {
  return _mm512_maskz_loadu_ps(mask_of(count), p);
}
static inline void vf_store_part(float* p, vf v, int64_t count) {
  _mm512_mask_storeu_ps(p, mask_of(count), v);
}
static inline vf vf_load_part_f16(const f16* p, int64_t count) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask_of(count), p));
}
static inline void vf_store_part_f16(f16* p, vf v, int64_t count) {
  _mm256_mask_storeu_epi16(p, mask_of(count), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static inline vf vf_add(vf x, vf y) { return _mm512_add_ps(x, y); }
static inline vf vf_sub(vf x, vf y) { return _mm512_sub_ps(x, y); }
static inline vf vf_mul(vf x, vf y) { return _mm512_mul_ps(x, y); }
static inline vf vf_div(vf x, vf y) { return _mm512_div_ps(x, y); }
static inline vf vf_fma(vf x, vf y, vf z) { return _mm512_fmadd_ps(x, y, z); }
static inline vf vf_max(vf x, vf y) { return _mm512_max_ps(x, y); }
static inline vf vf_min(vf x, vf y) { return _mm512_min_ps(x, y); }
static inline vf vf_round(vf x) { return _mm512_roundscale_ps(x, 8); }
static inline vf vf_sqrt(vf x) { return _mm512_sqrt_ps(x); }
static inline vf vf_abs(vf x) { return _mm512_abs_ps(x); }
static inline vf vf_copysign(vf x, vf sign) {
  /* bits of the second operand where the mask is set, else of the third */
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
      _mm512_set1_epi32(0x7FFFFFFF), _mm512_castps_si512(x), _mm512_castps_si512(sign), 0xCA));
}
static inline vf vf_cmp_ge(vf x, vf y) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, y, _CMP_GE_OQ), _mm512_set1_ps(1.0f));
}

/* isa/shared/steps.h describes it */
#define vf_scaled vf_scaled
static inline vf vf_scaled(vf y, vf shifted) {
  return _mm512_scalef_ps(y, _mm512_sub_ps(shifted, _mm512_set1_ps(12582912.0f + 254)));
}

/* The other lane of each pair, plus this one, or minus it where `minus` has a bit */
#define PAIRED(v, other, minus) \
  _mm512_add_ps(                \
      other,                    \
      _mm512_xor_ps(v, _mm512_castsi512_ps(_mm512_maskz_set1_epi32(minus, (int)0x80000000))))
static inline vf vf_hadamard(vf v) {
  v = PAIRED(v, _mm512_shuffle_f32x4(v, v, 0x4E), 0xFF00);
  v = PAIRED(v, _mm512_shuffle_f32x4(v, v, 0xB1), 0xF0F0);
  v = PAIRED(v, _mm512_permute_ps(v, 0x4E), 0xCCCC);
  return PAIRED(v, _mm512_permute_ps(v, 0xB1), 0xAAAA);
}
#undef PAIRED

static inline __m256 upper(vf v) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
}
#define FOLD(name, add8, add4)                                                          \
  static inline float name(vf v) {                                                      \
    __m256 eight = add8(_mm512_castps512_ps256(v), upper(v));                           \
    __m128 four = add4(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)); \
    __m128 two = add4(four, _mm_movehl_ps(four, four));                                 \
    return _mm_cvtss_f32(add4(two, _mm_movehdup_ps(two)));                              \
  }
FOLD(vf_hsum, _mm256_add_ps, _mm_add_ps)
FOLD(vf_hmax, _mm256_max_ps, _mm_max_ps)
FOLD(vf_hmin, _mm256_min_ps, _mm_min_ps)
#undef FOLD

static inline __m256 halve(vf v) { return _mm256_add_ps(_mm512_castps512_ps256(v), upper(v)); }
static inline void vf_hsum_four(float* sums, const vf* v) {
  _mm_storeu_ps(sums, fold_four(halve(v[0]), halve(v[1]), halve(v[2]), halve(v[3])));
}

static inline vi vi_set(i32 x) { return _mm512_set1_epi32(x); }
static inline vi vi_add(vi x, vi y) { return _mm512_add_epi32(x, y); }
static inline vi vi_sub(vi x, vi y) { return _mm512_sub_epi32(x, y); }
static inline vi vi_mul(vi x, vi y) { return _mm512_mullo_epi32(x, y); }
static inline vi vi_or(vi x, vi y) { return _mm512_or_si512(x, y); }
static inline vi vi_and(vi x, vi y) { return _mm512_and_si512(x, y); }
static inline vi vi_shl(vi x, int by) { return _mm512_slli_epi32(x, (unsigned)by); }
static inline vi vi_shr(vi x, int by) { return _mm512_srli_epi32(x, (unsigned)by); }
static inline vi vi_cast(vf x) { return _mm512_castps_si512(x); }
static inline vf vf_cast(vi x) { return _mm512_castsi512_ps(x); }
static inline vf vf_convert(vi x) { return _mm512_cvtepi32_ps(x); }
static inline vi vi_truncate(vf x) { return _mm512_cvttps_epi32(x); }
static inline i32 vi_hsum(vi v) { return _mm512_reduce_add_epi32(v); }
static inline void vi_store_8(void* p, vi v) {
  _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(v));
}
static inline void vi_store_16(uint16_t* p, vi v) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(v));
}

static inline vi join(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
static inline vi vi_rows_q4_0(const uint8_t* w, ptrdiff_t stride, vx x) {
  return join(eight_rows_q4_0(w, stride, x), eight_rows_q4_0(w + 8 * stride, stride, x));
}
static inline vi vi_rows_q8_0(const uint8_t* w, ptrdiff_t stride, vx x) {
  return join(eight_rows_q8_0(w, stride, x), eight_rows_q8_0(w + 8 * stride, stride, x));
}
static inline vf vf_gather_f16(const uint8_t* p, ptrdiff_t stride) {
  __m256 low = gather_8_f16(p, stride), high = gather_8_f16(p + 8 * stride, stride);
  return _mm512_castpd_ps(
      _mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(low)), _mm256_castps_pd(high), 1));
}

static inline vf vf_load_u8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_16(p)));
}

typedef __m512i vq;
static inline vq vq_load(const i8* p) { return _mm512_loadu_si512(p); }
static inline vi vi_dot_quads(vi sum, vq w, const uint8_t* x) {
  i32 four;
  __builtin_memcpy(&four, x, 4);
  return _mm512_dpbusd_epi32(sum, _mm512_set1_epi32(four), w);
}

#include "isa/shared/quads_store.h"
#include "isa/shared/quantized_range.h"

#endif
