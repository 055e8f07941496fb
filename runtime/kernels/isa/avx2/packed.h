/* The primitives of isa/scalar/packed.h, eight rows in a register; described there */
#ifndef HALFBYTE_ISA_AVX2_PACKED_H
#define HALFBYTE_ISA_AVX2_PACKED_H

#include "isa/avx2/simd.h"

typedef __m256 pf;
typedef __m256i pi;
typedef struct {
  __m256i q[8];
} pw;

static inline __m256i load_32(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
static inline pi pi_start(const i16* xs, int first, int second) {
  return _mm256_set1_epi32(first == second ? -first * (xs[0] + xs[1])
                                           : -first * xs[0] - second * xs[1]);
}
static inline pw pw_load_q4_0(const uint8_t* quantized, int part) {
  pw w;
  UNROLL for (int i = 0; i < 4; i++) {
    __m256i both = load_32(quantized + 64 * i + 32 * part), mask = _mm256_set1_epi8(15);
    w.q[i] = _mm256_and_si256(both, mask);
    w.q[4 + i] = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
  }
  return w;
}
static inline pw pw_load_q8_0(const uint8_t* quantized, int part) {
  pw w;
  UNROLL for (int i = 0; i < 8; i++) {
    w.q[i] = load_32(quantized + 64 * i + 32 * part);
#ifdef HB_DPBUSD
    w.q[i] = _mm256_xor_si256(w.q[i], _mm256_set1_epi8(-128)); /* plus Q8_0_OFFSET */
#endif
  }
  return w;
}
static inline void look_up(i8* to, const uint8_t* codes, const i8* table) {
  __m256i values = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)table));
  __m256i mask = _mm256_set1_epi8(15);
  UNROLL for (int i = 0; i < 64; i += 32) {
    __m256i both = load_32(codes + i), high = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
    __m256i low = _mm256_and_si256(both, mask);
    _mm256_storeu_si256((__m256i*)(to + i), _mm256_shuffle_epi8(values, low));
    _mm256_storeu_si256((__m256i*)(to + i + 256), _mm256_shuffle_epi8(values, high));
  }
}
typedef __m256i pb;
enum { LOW_CODES = 1 };
static inline pb pb_load(const uint8_t* p) { return load_32(p); }
static inline pb pb_set(int i) { return _mm256_set1_epi8((char)i); }
static inline pb pb_shift(pb v, int n) { return n ? _mm256_srli_epi16(v, n) : v; }
static inline pb pb_table(const i8* table, int offset) {
  pb values = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)table));
  return _mm256_add_epi8(values, pb_set(offset));
}
static inline pb pb_look_up(pb table, pb codes) { return _mm256_shuffle_epi8(table, codes); }
/* The bits of columns 4 i to 4 i + 3 from the fourth on, for five and six bits, shifted into place
 */
static inline __m256i moved(__m256i bits, int left) {
  return left < 0 ? _mm256_srli_epi16(bits, -left) : _mm256_slli_epi16(bits, left);
}
static inline pw pw_load_5(const uint8_t* quantized, int part) {
  pw w = pw_load_q4_0(quantized, part);
  __m256i high = load_32(quantized + 256 + 32 * part), mask = _mm256_set1_epi8(16);
  UNROLL for (int i = 0; i < 8; i++) {
    w.q[i] = _mm256_or_si256(w.q[i], _mm256_and_si256(moved(high, 4 - i), mask));
  }
  return w;
}
static inline pw pw_load_6(const uint8_t* quantized, int part) {
  pw w = pw_load_q4_0(quantized, part);
  UNROLL for (int i = 0; i < 8; i++) {
    __m256i high = load_32(quantized + 256 + 64 * (i / 4) + 32 * part), mask = _mm256_set1_epi8(48);
    w.q[i] = _mm256_or_si256(w.q[i], _mm256_and_si256(moved(high, 4 - 2 * (i % 4)), mask));
  }
  return w;
}
static inline __m256i four_of(const i8* x) {
  i32 four;
  __builtin_memcpy(&four, x, 4);
  return _mm256_set1_epi32(four);
}
#ifdef HB_DPBUSD
static inline pi dot_four(pi sum, __m256i quantized, const i8* x) {
  return HB_DPBUSD(sum, quantized, four_of(x));
}
#include "isa/shared/fours.h"
#include "isa/shared/rows_alike.h"
enum { OFFSET_15 = 128, OFFSET_63 = 128, OFFSET_127 = 128 };
#else
static inline pi dot_four(pi sum, __m256i quantized, const i8* x) {
  __m256i pairs = _mm256_maddubs_epi16(quantized, four_of(x));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
static inline pi pi_dot_q4_0(const pw* w, const i8* x, pi start) {
  pi sum = _mm256_setzero_si256(); /* at most 16 * 15 * 127 in 16 bits */
  UNROLL for (int i = 0; i < 8; i++) {
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w->q[i], four_of(x + 4 * i)));
    __asm__("" : "+x"(sum)); /* not all products first */
  }
  return _mm256_add_epi32(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)), start);
}
/* products of columns 4 i to 4 i + 7; 16 bits hold four of 63 * 127 */
static inline __m256i dot_eight(const pw* w, int i, const i8* x) {
  __m256i sum = _mm256_add_epi16(_mm256_maddubs_epi16(w->q[i], four_of(x + 4 * i)),
                                 _mm256_maddubs_epi16(w->q[i + 1], four_of(x + 4 * i + 4)));
  __asm__("" : "+x"(sum));
  return sum;
}
static inline pi pi_dot_5(const pw* w, const i8* x, pi start) {
  pi one = _mm256_set1_epi16(1); /* eight products of 31 * 127 in 16 bits */
  __m256i low = _mm256_add_epi16(dot_eight(w, 0, x), dot_eight(w, 2, x));
  __m256i high = _mm256_add_epi16(dot_eight(w, 4, x), dot_eight(w, 6, x));
  pi sum = _mm256_add_epi32(_mm256_madd_epi16(low, one), _mm256_madd_epi16(high, one));
  return _mm256_add_epi32(sum, start);
}
static inline pi pi_dot_half(const pw* w, int half, const i8* x, pi start) {
  pi one = _mm256_set1_epi16(1);
  pi sum = _mm256_add_epi32(_mm256_madd_epi16(dot_eight(w, 4 * half, x), one),
                            _mm256_madd_epi16(dot_eight(w, 4 * half + 2, x), one));
  return _mm256_add_epi32(sum, start);
}
/* for codes_rows.inc: values of two bits, below 32, below 128, and signed */
enum { OFFSET_15 = 16, APART_63 = 1, OFFSET_63 = 64, APART_127 = 1, OFFSET_127 = 0 };
enum { TWOS_AS_FOURS = 1 };
static inline pi pi_dot_half_3(const pw* w, int half, const i8* x, pi start) {
  __m256i fours = _mm256_srai_epi16(dot_eight(w, 4 * half + 2, x), 2);
  __m256i sum = _mm256_add_epi16(dot_eight(w, 4 * half, x), fours);
  return _mm256_add_epi32(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)), start);
}
static inline pi pi_dot_half_31(const pw* w, int half, const i8* x, pi start) {
  __m256i sum = _mm256_add_epi16(dot_eight(w, 4 * half, x), dot_eight(w, 4 * half + 2, x));
  return _mm256_add_epi32(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)), start);
}
static inline pi pi_dot_half_127(const pw* w, int half, const i8* x, pi start) {
  pi sum = start;
  UNROLL for (int i = 4 * half; i < 4 * half + 4; i++) {
    sum = dot_four(sum, w->q[i], x + 4 * i);
    __asm__("" : "+x"(sum));
  }
  return sum;
}
#define pi_dot_half_255 pi_dot_half_q8_0
/* columns 4 first to 4 last - 1 */
INLINE pi dot_signed(const pw* w, int first, int last, const i8* x, pi start) {
  pi sum = start, one = _mm256_set1_epi16(1);
  UNROLL for (int i = first; i < last; i++) {
    __m256i sized = _mm256_sign_epi8(four_of(x + 4 * i), w->q[i]);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w->q[i]), sized);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, one));
    __asm__("" : "+x"(sum));
  }
  return sum;
}
static inline pi pi_dot_q8_0(const pw* w, const i8* x, pi start) {
  return dot_signed(w, 0, 8, x, start);
}
static inline pi pi_dot_half_q8_0(const pw* w, int half, const i8* x, pi start) {
  return dot_signed(w, 4 * half, 4 * half + 4, x, start);
}

/* For several rows of activations (linear/unpacked.inc). Eight bits are unpacked to 16, even and
 * odd columns separately; four bits to bytes, whose products fit into 16 bits for a whole block. */
#define UNPACKED_BYTES(q4) ((q4) ? 1 : 2)
enum { UNPACKED_ROWS = 64, UNPACKED_BESIDE = 1 }; /* rows of activations one after the other */
static inline __m256i even_of(__m256i quantized) {
  return _mm256_srai_epi16(_mm256_slli_epi16(quantized, 8), 8);
}
static inline __m256i odd_of(__m256i quantized) { return _mm256_srai_epi16(quantized, 8); }
static inline void store_32(void* p, __m256i v) { _mm256_storeu_si256((__m256i*)p, v); }
/* Unpacks a block of sixteen rows, four columns after four. */
static inline void unpack_block(uint8_t* to, const uint8_t* quantized, int q4) {
  __m256i mask = _mm256_set1_epi8(15);
  for (int i = 0; i < 8; i++, quantized += 32) {
    __m256i both = load_32(quantized);
    if (q4) {
      store_32(to + 32 * i, _mm256_and_si256(both, mask));
      store_32(to + 32 * i + 256, _mm256_and_si256(_mm256_srli_epi16(both, 4), mask));
    }
  }
  for (int i = 0; i < 16 && !q4; i++) {
    __m256i both = load_32(quantized + 32 * i - 256);
    store_32(to + 64 * i, even_of(both));
    store_32(to + 64 * i + 32, odd_of(both));
  }
}
/* Each row's share of the scale `top`, in 1 / 16384, in both halves */
static inline pi pi_shares(pf d, pf top) {
  __m256i share = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_div_ps(d, top), _mm256_set1_ps(16384)));
  return _mm256_blend_epi16(share, _mm256_slli_epi32(share, 16), 0xaa);
}
/* Eight-bit values times 128 and their rows' shares */
static inline void widen_block(uint8_t* to, const uint8_t* quantized, const pi* shares) {
  for (int i = 0; i < 16; i++) {
    __m256i both = load_32(quantized + 32 * i), share = shares[i % 2];
    __m256i even = _mm256_slli_epi16(both, 8);
    __m256i odd = _mm256_and_si256(both, _mm256_set1_epi16(-256));
    store_32(to + 64 * i, _mm256_mulhrs_epi16(even, share));
    store_32(to + 64 * i + 32, _mm256_mulhrs_epi16(odd, share));
  }
}
static inline void unpack_activations(i16* to, const i8* x, int columns, int q4) {
  for (int i = 0; i < columns; i += 32) {
    __m256i quantized = load_32(x + i);
    if (q4) {
      store_32((i8*)to + i, quantized);
    } else {
      store_32(to + i, even_of(quantized));
      store_32(to + i + 16, odd_of(quantized));
    }
  }
}
/* dots[4 p + c] += products of part p with row c. Written out, because compilers otherwise make all
 * products before the first sum; two at a time are faster than one. */
#define ADD_PRODUCTS(c, multiply, add)                                 \
  {                                                                    \
    __m256i one = multiply(first, row), other = multiply(second, row); \
    __asm__("" : "+x"(one), "+x"(other));                              \
    dots[c] = add(dots[c], one);                                       \
    dots[4 + (c)] = add(dots[4 + (c)], other);                         \
    __asm__("" : "+x"(dots[c]), "+x"(dots[4 + (c)]));                  \
  }
INLINE void dot_block_16(pi* dots, const uint8_t* w, const i16* x) {
  UNROLL for (int i = 0; i < 8; i++, w += 128, x += 2) {
    UNROLL for (int odd = 0; odd < 2; odd++) {
      __m256i first = load_32(w + 32 * odd), second = load_32(w + 64 + 32 * odd);
      UNROLL for (int c = 0; c < 4; c++) {
        __m256i row = four_of((const i8*)(x + c * UNPACKED_SPAN + 16 * odd));
        ADD_PRODUCTS(c, _mm256_madd_epi16, _mm256_add_epi32)
      }
    }
  }
}
INLINE void dot_unpacked_16(pi* dots, const uint8_t* w, const i16* x, int columns) {
  UNROLL for (int i = 0; i < 8; i++) { dots[i] = _mm256_setzero_si256(); }
  for (int at = 0; at < columns; at += 32) {
    dot_block_16(dots, w + 32 * at, x + at);
  }
}
INLINE void dot_unpacked_4(pi* dots, const uint8_t* w, const i8* x, const i32* starts) {
  UNROLL for (int i = 0; i < 8; i++) {
    dots[i] = _mm256_set1_epi32(starts[i % 4 * (UNPACKED_SPAN / 32)]);
  }
  UNROLL for (int i = 0; i < 8; i++, w += 64, x += 4) {
    __m256i first = load_32(w), second = load_32(w + 32);
    UNROLL for (int c = 0; c < 4; c++) {
      __m256i row = four_of(x + 2 * c * UNPACKED_SPAN);
      ADD_PRODUCTS(c, _mm256_maddubs_epi16, _mm256_add_epi16)
    }
  }
  UNROLL for (int i = 0; i < 8; i++) { dots[i] = _mm256_madd_epi16(dots[i], _mm256_set1_epi16(1)); }
}
#undef ADD_PRODUCTS
#endif
#define QUANTIZED_OF(w, i) w.q[i]
static inline __m128i eight_bytes(const void* bytes, int part) {
  return _mm_loadl_epi64((const __m128i*)((const uint8_t*)bytes + 8 * part));
}
static inline pf pf_load_low4(const uint8_t* bytes, int part) {
  __m256i low = _mm256_set1_epi32(15), v = _mm256_cvtepu8_epi32(eight_bytes(bytes, part));
  return _mm256_cvtepi32_ps(_mm256_and_si256(v, low));
}
static inline pf pf_load_high4(const uint8_t* bytes, int part) {
  __m256i high = _mm256_set1_epi32(0xF0), v = _mm256_cvtepu8_epi32(eight_bytes(bytes, part));
  return _mm256_cvtepi32_ps(_mm256_and_si256(v, high));
}
static inline pf pf_load_i8(const i8* bytes, int part) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight_bytes(bytes, part)));
}
static inline pf pf_zero(void) { return _mm256_setzero_ps(); }
static inline pf pf_scales(const f16* d, int part) {
  return _mm256_cvtph_ps(load_16(d + 8 * part));
}
static inline pf pf_load(const float* p) { return _mm256_loadu_ps(p); }
static inline pf pf_mul(pf a, pf b) { return _mm256_mul_ps(a, b); }
static inline pf pf_half(vf v, int half) { return half ? v.b : v.a; }
static inline pf pf_add_scaled(pf sum, pf v, float by) {
  return _mm256_add_ps(sum, _mm256_mul_ps(v, _mm256_set1_ps(by)));
}
static inline pf pf_scaled(pf scale, pi dots) {
  return _mm256_mul_ps(scale, _mm256_cvtepi32_ps(dots));
}
static inline pf pf_add_product(pf sum, pf scale, float by, pi dots) {
  __m256 scaled = _mm256_mul_ps(scale, _mm256_set1_ps(by));
  return _mm256_add_ps(sum, _mm256_mul_ps(scaled, _mm256_cvtepi32_ps(dots)));
}
static inline pf pf_set(float x) { return _mm256_set1_ps(x); }
static inline pf pf_add(pf a, pf b) { return _mm256_add_ps(a, b); }
static inline pf pf_max(pf a, pf b) { return _mm256_max_ps(a, b); }
static inline pf pf_fma(pf a, pf b, pf c) { return _mm256_fmadd_ps(a, b, c); }
static inline pf pf_mul_add(pf a, pf b, pf c) { return _mm256_add_ps(c, _mm256_mul_ps(a, b)); }
static inline void pf_store(float* p, pf v) { _mm256_storeu_ps(p, v); }
static inline void pf_store_sum(float* p, const float* r, pf v) {
  _mm256_storeu_ps(p, r ? _mm256_add_ps(_mm256_loadu_ps(r), v) : v);
}

#include "isa/shared/codes.h"
#include "isa/shared/dots.h"
#include "isa/shared/dots_of_fours.h"

#endif
