/* The primitives of isa/scalar/simd.h on AVX2 with FMA and F16C; described there */
#ifndef HALFBYTE_ISA_AVX2_SIMD_H
#define HALFBYTE_ISA_AVX2_SIMD_H

#include "isa/shared/rows_x86.h"

typedef struct {
  __m256 a, b; /* lanes 0-7, 8-15 */
} vf;
typedef struct {
  __m256i a, b;
} vi;
#define PAIR(type, f) ((type){f(x.a, y.a), f(x.b, y.b)})

static inline vf vf_set(float x) { return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline vf vf_load(const float* p) {
  return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline vf vf_load_f16(const f16* p) {
  return (vf){_mm256_cvtph_ps(load_16(p)), _mm256_cvtph_ps(load_16(p + 8))};
}
static inline vf vf_load_bf16(const bf16* p) {
  __m256i low = _mm256_cvtepu16_epi32(load_16(p)), high = _mm256_cvtepu16_epi32(load_16(p + 8));
  return (vf){_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)),
              _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
}
static inline vf convert_i8(__m128i v) {
  return (vf){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v)),
              _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)))};
}
/* Not convert_i8: one load and a shift of bytes take longer than two loads. */
static inline vf vf_load_i8(const i8* p) {
  __m256i low = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p));
  __m256i high = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)(p + 8)));
  return (vf){_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)};
}
static inline vf vf_load_low4(const uint8_t* p) {
  return convert_i8(_mm_and_si128(load_16(p), _mm_set1_epi8(15)));
}
static inline vf vf_load_high4(const uint8_t* p) {
  return convert_i8(_mm_and_si128(_mm_srli_epi16(load_16(p), 4), _mm_set1_epi8(15)));
}
static inline void vf_store(float* p, vf v) {
  _mm256_storeu_ps(p, v.a);
  _mm256_storeu_ps(p + 8, v.b);
}
static inline void vf_store_f16(f16* p, vf v) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128((__m128i*)(p + 8), _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
}

/* All ones in the lanes below `count`: 16 - count zeros follow them */
static inline vi mask_of(int64_t count) {
  static const i32 ones[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  const __m256i* p = (const __m256i*)(ones + 16 - count);
  return (vi){_mm256_loadu_si256(p), _mm256_loadu_si256(p + 1)};
}
static inline vf vf_load_part(const float* p, int64_t count) {
  vi mask = mask_of(count);
  return (vf){_mm256_maskload_ps(p, mask.a), _mm256_maskload_ps(p + 8, mask.b)};
}
/* Not with masks: up to Zen 4 such a store takes 12 cycles or more. */
static inline void vf_store_part(float* p, vf v, int64_t count) {
  if (count & 8) {
    _mm256_storeu_ps(p, v.a);
    v.a = v.b;
    p += 8;
  }
  __m128 four = _mm256_castps256_ps128(v.a);
  if (count & 4) {
    _mm_storeu_ps(p, four);
    four = _mm256_extractf128_ps(v.a, 1);
    p += 4;
  }
  if (count & 2) {
    _mm_storel_pi((__m64*)p, four);
    four = _mm_movehl_ps(four, four);
    p += 2;
  }
  if (count & 1) {
    _mm_store_ss(p, four);
  }
}
static inline vf vf_load_part_f16(const f16* p, int64_t count) {
  if (count == 8) { /* small heads */
    return (vf){_mm256_cvtph_ps(load_16(p)), _mm256_setzero_ps()};
  }
  f16 lanes[16] = {0};
  for (int64_t i = 0; i < count; i++) {
    lanes[i] = p[i];
  }
  return vf_load_f16(lanes);
}
static inline void vf_store_part_f16(f16* p, vf v, int64_t count) {
  f16 lanes[16];
  vf_store_f16(lanes, v);
  for (int64_t i = 0; i < count; i++) {
    p[i] = lanes[i];
  }
}

static inline vf vf_add(vf x, vf y) { return PAIR(vf, _mm256_add_ps); }
static inline vf vf_sub(vf x, vf y) { return PAIR(vf, _mm256_sub_ps); }
static inline vf vf_mul(vf x, vf y) { return PAIR(vf, _mm256_mul_ps); }
static inline vf vf_div(vf x, vf y) { return PAIR(vf, _mm256_div_ps); }
static inline vf vf_fma(vf x, vf y, vf z) {
  return (vf){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
static inline vf vf_max(vf x, vf y) { return PAIR(vf, _mm256_max_ps); }
static inline vf vf_min(vf x, vf y) { return PAIR(vf, _mm256_min_ps); }
static inline vf vf_round(vf x) { return (vf){_mm256_round_ps(x.a, 8), _mm256_round_ps(x.b, 8)}; }
static inline vf vf_sqrt(vf x) { return (vf){_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
static inline vf vf_abs(vf x) {
  vf y = vf_set(-0.0f);
  return (vf){_mm256_andnot_ps(y.a, x.a), _mm256_andnot_ps(y.b, x.b)};
}
static inline vf vf_copysign(vf x, vf sign) {
  __m256 bit = _mm256_set1_ps(-0.0f);
  return (vf){_mm256_blendv_ps(_mm256_andnot_ps(bit, x.a), _mm256_or_ps(bit, x.a), sign.a),
              _mm256_blendv_ps(_mm256_andnot_ps(bit, x.b), _mm256_or_ps(bit, x.b), sign.b)};
}
static inline vf vf_cmp_ge(vf x, vf y) {
  __m256 one = _mm256_set1_ps(1.0f);
  return (vf){_mm256_and_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ), one),
              _mm256_and_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ), one)};
}

/* The other lane of each pair, plus this one, or minus it where `minus` is set */
static inline __m256 paired(__m256 v, __m256 other, __m256i minus) {
  return _mm256_add_ps(other, _mm256_xor_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32(minus, 31))));
}
static inline __m256 hadamard_8(__m256 v) {
  v = paired(v, _mm256_permute2f128_ps(v, v, 1), _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
  v = paired(v, _mm256_permute_ps(v, 0x4E), _mm256_setr_epi32(0, 0, 1, 1, 0, 0, 1, 1));
  return paired(v, _mm256_permute_ps(v, 0xB1), _mm256_setr_epi32(0, 1, 0, 1, 0, 1, 0, 1));
}
static inline vf vf_hadamard(vf v) {
  return (vf){hadamard_8(_mm256_add_ps(v.a, v.b)), hadamard_8(_mm256_sub_ps(v.a, v.b))};
}

#define FOLD(name, add8, add4)                                                          \
  static inline float name(vf v) {                                                      \
    __m256 eight = add8(v.a, v.b);                                                      \
    __m128 four = add4(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)); \
    __m128 two = add4(four, _mm_movehl_ps(four, four));                                 \
    return _mm_cvtss_f32(add4(two, _mm_movehdup_ps(two)));                              \
  }
FOLD(vf_hsum, _mm256_add_ps, _mm_add_ps)
FOLD(vf_hmax, _mm256_max_ps, _mm_max_ps)
FOLD(vf_hmin, _mm256_min_ps, _mm_min_ps)
#undef FOLD

static inline void vf_hsum_four(float* sums, const vf* v) {
  _mm_storeu_ps(sums, fold_four(_mm256_add_ps(v[0].a, v[0].b), _mm256_add_ps(v[1].a, v[1].b),
                                _mm256_add_ps(v[2].a, v[2].b), _mm256_add_ps(v[3].a, v[3].b)));
}

static inline vi vi_set(i32 x) { return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
static inline vi vi_add(vi x, vi y) { return PAIR(vi, _mm256_add_epi32); }
static inline vi vi_sub(vi x, vi y) { return PAIR(vi, _mm256_sub_epi32); }
static inline vi vi_mul(vi x, vi y) { return PAIR(vi, _mm256_mullo_epi32); }
static inline vi vi_or(vi x, vi y) { return PAIR(vi, _mm256_or_si256); }
static inline vi vi_and(vi x, vi y) { return PAIR(vi, _mm256_and_si256); }
static inline vi vi_shl(vi x, int by) {
  return (vi){_mm256_slli_epi32(x.a, by), _mm256_slli_epi32(x.b, by)};
}
static inline vi vi_shr(vi x, int by) {
  return (vi){_mm256_srli_epi32(x.a, by), _mm256_srli_epi32(x.b, by)};
}
static inline vi vi_cast(vf x) { return (vi){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
static inline vf vf_cast(vi x) { return (vf){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
static inline vf vf_convert(vi x) { return (vf){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
static inline vi vi_truncate(vf x) {
  return (vi){_mm256_cvttps_epi32(x.a), _mm256_cvttps_epi32(x.b)};
}
static inline i32 vi_hsum(vi v) {
  __m256i eight = _mm256_add_epi32(v.a, v.b);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}
/* The low bytes of the lanes: fours in each half, then all in order */
static inline void vi_store_8(void* p, vi v) {
  __m128i fours = _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  __m256i low = _mm256_broadcastsi128_si256(fours);
  __m256i bytes = _mm256_or_si256(_mm256_shuffle_epi8(v.a, low),
                                  _mm256_shuffle_epi8(v.b, _mm256_shuffle_epi32(low, 0x51)));
  bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5));
  _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(bytes));
}
/* as 16 unsigned 16-bit integers */
static inline __m256i pack_16(vi v) {
  vi low = vi_and(v, vi_set(0xFFFF));
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low.a, low.b), 0xD8);
}
static inline void vi_store_16(uint16_t* p, vi v) { _mm256_storeu_si256((__m256i*)p, pack_16(v)); }

static inline vi vi_rows_q4_0(const uint8_t* w, ptrdiff_t stride, vx x) {
  return (vi){eight_rows_q4_0(w, stride, x), eight_rows_q4_0(w + 8 * stride, stride, x)};
}
static inline vi vi_rows_q8_0(const uint8_t* w, ptrdiff_t stride, vx x) {
  return (vi){eight_rows_q8_0(w, stride, x), eight_rows_q8_0(w + 8 * stride, stride, x)};
}
static inline vf vf_gather_f16(const uint8_t* p, ptrdiff_t stride) {
  return (vf){gather_8_f16(p, stride), gather_8_f16(p + 8 * stride, stride)};
}

static inline vf vf_load_u8(const uint8_t* p) {
  __m128i v = load_16(p);
  return (vf){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v)),
              _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)))};
}

#include "isa/avx2/quads.h"

#undef PAIR

#endif
