/* Four 8-bit numbers times those of sixteen channels, on 256 bits; part of isa/avx2/simd.h */
#ifndef HALFBYTE_ISA_AVX2_QUADS_H
#define HALFBYTE_ISA_AVX2_QUADS_H

#ifdef HB_DPBUSD
typedef vi vq;
static inline vq vq_load(const i8* p) {
  return (vq){_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 32))};
}
static inline vi vi_dot_quads(vi sum, vq w, const uint8_t* x) {
  i32 four;
  __builtin_memcpy(&four, x, 4);
  __m256i numbers = _mm256_set1_epi32(four);
  return (vi){HB_DPBUSD(sum.a, numbers, w.a), HB_DPBUSD(sum.b, numbers, w.b)};
}
#include "isa/shared/quads_store.h"
#include "isa/shared/quantized_range.h"
#else
/* As 16-bit integers: pairs of unsigned byte products would overflow them. */
typedef struct {
  vi even, odd;
} vq;
static inline __m256i even_bytes(const i8* p) {
  return _mm256_srai_epi16(_mm256_slli_epi16(_mm256_loadu_si256((const __m256i*)p), 8), 8);
}
static inline __m256i odd_bytes(const i8* p) {
  return _mm256_srai_epi16(_mm256_loadu_si256((const __m256i*)p), 8);
}
static inline vq vq_load(const i8* p) {
  return (vq){{even_bytes(p), even_bytes(p + 32)}, {odd_bytes(p), odd_bytes(p + 32)}};
}
/* As quads_store; returns the sum of even times odd numbers */
static inline __m128i products_of(uint8_t* to, __m128i quantized, int64_t count) {
  __m128i even = _mm_and_si128(quantized, _mm_set1_epi16(255)), odd = _mm_srli_epi16(quantized, 8);
  __m128i low = _mm_unpacklo_epi32(even, odd);
  if (count == 4) {
    _mm_storel_epi64((__m128i*)to, low);
  } else {
    _mm_storeu_si128((__m128i*)to, low);
  }
  if (count == 16) {
    _mm_storeu_si128((__m128i*)(to + 16), _mm_unpackhi_epi32(even, odd));
  }
  return _mm_madd_epi16(even, odd);
}
static inline void quads_store(uint8_t* to, const uint8_t* from, int64_t count, uint8_t flip) {
  __m128i flips = _mm_set1_epi8((char)flip);
  for (; count >= 16; count -= 16, from += 16, to += 32) {
    products_of(to, _mm_xor_si128(load_16(from), flips), 16);
  }
  if (count >= 8) {
    products_of(to, _mm_xor_si128(_mm_loadl_epi64((const __m128i*)from), flips), 8);
    count -= 8;
    from += 8;
    to += 16;
  }
  if (count >= 4) {
    i32 four;
    __builtin_memcpy(&four, from, 4);
    products_of(to, _mm_xor_si128(_mm_cvtsi32_si128(four), flips), 4);
  }
}
/* Loaded as a float: of a wider load GCC extracts the parts through general registers. */
static inline __m256i two_numbers(const uint8_t* x) {
  return _mm256_castps_si256(_mm256_broadcast_ss((const float*)x));
}
static inline vi vi_dot_quads(vi sum, vq w, const uint8_t* x) {
  __m256i even = two_numbers(x), odd = two_numbers(x + 4);
  sum.a = _mm256_add_epi32(sum.a, _mm256_madd_epi16(w.even.a, even));
  sum.b = _mm256_add_epi32(sum.b, _mm256_madd_epi16(w.even.b, even));
  sum.a = _mm256_add_epi32(sum.a, _mm256_madd_epi16(w.odd.a, odd));
  sum.b = _mm256_add_epi32(sum.b, _mm256_madd_epi16(w.odd.b, odd));
  return sum;
}

/* Primitives of conv/quantized_wide.inc: 16-bit integers */
#define HALVES(f, x, y) ((vi){f((x).a, (y).a), f((x).b, (y).b)})
static inline vi even_by_odd(vq w) { return HALVES(_mm256_madd_epi16, w.even, w.odd); }
static inline vq vq_add(vq x, vq y) {
  return (vq){HALVES(_mm256_add_epi16, x.even, y.even), HALVES(_mm256_add_epi16, x.odd, y.odd)};
}
static inline vq vq_sub(vq x, vq y) {
  return (vq){HALVES(_mm256_sub_epi16, x.even, y.even), HALVES(_mm256_sub_epi16, x.odd, y.odd)};
}
static inline void vq_store_wide(i8* p, vq w) {
  __m256i* to = (__m256i*)p;
  _mm256_storeu_si256(to, w.even.a);
  _mm256_storeu_si256(to + 1, w.even.b);
  _mm256_storeu_si256(to + 2, w.odd.a);
  _mm256_storeu_si256(to + 3, w.odd.b);
}
static inline __m256i products_of_32(uint8_t* to, __m256i even, __m256i odd) {
  __m256i low = _mm256_unpacklo_epi32(even, odd), high = _mm256_unpackhi_epi32(even, odd);
  _mm256_storeu_si256((__m256i*)to, _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_storeu_si256((__m256i*)(to + 32), _mm256_permute2x128_si256(low, high, 0x31));
  return _mm256_madd_epi16(even, odd);
}
static inline i32 quads_products(uint8_t* to, const uint8_t* from, int64_t count, uint8_t flip) {
  __m256i mask = _mm256_set1_epi16(255), flips = _mm256_set1_epi8((char)flip);
  __m256i sum = _mm256_setzero_si256();
  __m128i rest = _mm_setzero_si128();
  int64_t i = 0;
  for (; i + 32 <= count; i += 32, to += 64) {
    __m256i quantized = _mm256_xor_si256(_mm256_loadu_si256((const __m256i*)(from + i)), flips);
    __m256i even = _mm256_and_si256(quantized, mask), odd = _mm256_srli_epi16(quantized, 8);
    sum = _mm256_add_epi32(sum, products_of_32(to, even, odd));
  }
  if (i + 16 <= count) {
    __m128i quantized = _mm_xor_si128(load_16(from + i), _mm256_castsi256_si128(flips));
    rest = products_of(to, quantized, 16);
    i += 16;
    to += 32;
  }
  for (; i < count; i += 4, to += 8) {
    i32 four;
    __builtin_memcpy(&four, from + i, 4);
    four ^= (i32)(0x01010101u * flip);
    rest = _mm_add_epi32(rest, products_of(to, _mm_cvtsi32_si128(four), 4));
  }
  return vi_hsum((vi){sum, _mm256_zextsi128_si256(rest)});
}
/* For four neighbours d, `count` bytes apart, a multiple of 32: d0 - d2, d1 + d2, d2 - d1, d1 - d3
 * are stored `next` apart. Adds to `products`. */
static inline void quads_neighbours(uint8_t* to, int64_t next, i32* products, const uint8_t* from,
                                    int64_t count, uint8_t flip) {
  __m256i mask = _mm256_set1_epi16(255), flips = _mm256_set1_epi8((char)flip), sums[4];
  UNROLL for (int j = 0; j < 4; j++) { sums[j] = _mm256_setzero_si256(); }
  for (int64_t i = 0; i < count; i += 32, to += 64) {
    __m256i d[4][2];
    UNROLL for (int j = 0; j < 4; j++) {
      const __m256i* x = (const __m256i*)(from + j * count + i);
      __m256i quantized = _mm256_xor_si256(_mm256_loadu_si256(x), flips);
      d[j][0] = _mm256_and_si256(quantized, mask);
      d[j][1] = _mm256_srli_epi16(quantized, 8);
    }
    __m256i mixed[4][2];
    UNROLL for (int odd = 0; odd < 2; odd++) {
      mixed[0][odd] = _mm256_sub_epi16(d[0][odd], d[2][odd]);
      mixed[1][odd] = _mm256_add_epi16(d[1][odd], d[2][odd]);
      mixed[2][odd] = _mm256_sub_epi16(d[2][odd], d[1][odd]);
      mixed[3][odd] = _mm256_sub_epi16(d[1][odd], d[3][odd]);
    }
    UNROLL for (int j = 0; j < 4; j++) {
      __m256i added = products_of_32(to + j * next, mixed[j][0], mixed[j][1]);
      sums[j] = _mm256_add_epi32(sums[j], added);
    }
  }
  for (int j = 0; j < 4; j++) {
    products[j] += vi_hsum((vi){sums[j], _mm256_setzero_si256()});
  }
}
static inline vq vq_load_wide(const i8* p) {
  const __m256i* w = (const __m256i*)p;
  return (vq){{_mm256_loadu_si256(w), _mm256_loadu_si256(w + 1)},
              {_mm256_loadu_si256(w + 2), _mm256_loadu_si256(w + 3)}};
}
/* (x0 + w1) (x1 + w0) = x0 w0 + x1 w1 + x0 x1 + w0 w1: one product instead of two, and additions,
 * which have twice the throughput */
static inline vi vi_dot_mixed(vi sum, vq w, const uint8_t* x) {
  __m256i even = two_numbers(x), odd = two_numbers(x + 4);
  __m256i a = _mm256_madd_epi16(_mm256_add_epi16(even, w.odd.a), _mm256_add_epi16(odd, w.even.a));
  __m256i b = _mm256_madd_epi16(_mm256_add_epi16(even, w.odd.b), _mm256_add_epi16(odd, w.even.b));
  return (vi){_mm256_add_epi32(sum.a, a), _mm256_add_epi32(sum.b, b)};
}
/* Two products for sixteen channels; w is a row of `even` or of `odd`. */
static inline vi vi_load_wide(const i8* p) {
  const __m256i* w = (const __m256i*)p;
  return (vi){_mm256_loadu_si256(w), _mm256_loadu_si256(w + 1)};
}
static inline vi vi_dot_two(vi sum, vi w, const uint8_t* x) {
  __m256i two = two_numbers(x);
  return vi_add(sum, (vi){_mm256_madd_epi16(w.a, two), _mm256_madd_epi16(w.b, two)});
}

/* Eight lanes: one half of a vi */
typedef __m256i vh;
static inline vh vh_half(const vi* v, int half) { return half ? v->b : v->a; }
static inline vh vh_dot(vh sum, vh w, vh x) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(w, x));
}
/* Interleaves sixteen bytes of each of `count` pixels of two rows, as 16-bit integers; returns the
 * end */
static inline uint8_t* rows_beside(uint8_t* to, const uint8_t* a, int64_t a_step, const uint8_t* b,
                                   int64_t b_step, int64_t count, uint8_t flip) {
  __m128i flips = _mm_set1_epi8((char)flip);
  for (int64_t i = 0; i < count; i++, to += 64, a += a_step, b += b_step) {
    __m128i x = _mm_xor_si128(load_16(a), flips), y = _mm_xor_si128(load_16(b), flips);
    __m256i* pairs = (__m256i*)to;
    _mm256_storeu_si256(pairs, _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(x, y)));
    _mm256_storeu_si256(pairs + 1, _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(x, y)));
  }
  return to;
}

/* The range and zero point of quantized results, thirty-two at a time. If the type's minimum is
 * negative, it is added (`below`) after values were limited to 0...255. */
typedef struct {
  vf lo, hi; /* minus `zero` */
  vi zero;
  __m256 highest;
  __m256i zeros, least, below;
} quantized_range;
static inline __m256i all_bytes(__m256i v) {
  return _mm256_shuffle_epi8(v, _mm256_setzero_si256());
}
static inline quantized_range quantized_range_of(vf lo, vf hi, vi zero) {
  __m256i least = _mm256_add_epi32(_mm256_cvtps_epi32(lo.a), zero.a);
  __m256i below = _mm256_and_si256(_mm256_srai_epi32(least, 31), _mm256_set1_epi32(-128));
  __m256i zeros = _mm256_sub_epi32(zero.a, below);
  least = _mm256_sub_epi32(least, below);
  return (quantized_range){
      lo, hi, zero, hi.a, _mm256_packs_epi32(zeros, zeros), all_bytes(least), all_bytes(below)};
}
/* NaN becomes the minimum, like everything too small for an integer. */
static inline __m256i nearest_quantized(vi total, vf scale, const quantized_range* s) {
  vf real = vf_mul(vf_convert(total), scale);
  __m256i a = _mm256_cvtps_epi32(_mm256_min_ps(s->highest, real.a));
  __m256i b = _mm256_cvtps_epi32(_mm256_min_ps(s->highest, real.b));
  return _mm256_adds_epi16(_mm256_packs_epi32(a, b), s->zeros);
}
/* Stores sixteen results of each of two sums; y is stored last, because z may be y. */
static inline void store_two_quantized(uint8_t* y, uint8_t* z, vi first, vi second, vf scale,
                                       const quantized_range* s) {
  __m256i quantized =
      _mm256_packus_epi16(nearest_quantized(first, scale, s), nearest_quantized(second, scale, s));
  quantized = _mm256_add_epi8(_mm256_max_epu8(quantized, s->least), s->below);
  quantized = _mm256_permutevar8x32_epi32(quantized, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm_storeu_si128((__m128i*)z, _mm256_extracti128_si256(quantized, 1));
  _mm_storeu_si128((__m128i*)y, _mm256_castsi256_si128(quantized));
}
#undef HALVES
#endif

#endif
