/* The primitives of isa/scalar/packed.h, all sixteen rows in a register; described there */
#ifndef HALFBYTE_ISA_AVX512VNNI_PACKED_H
#define HALFBYTE_ISA_AVX512VNNI_PACKED_H

#include "isa/avx512vnni/simd.h"

typedef __m512 pf;
typedef __m512i pi;
typedef struct {
  __m512i q[8];
} pw;

static inline pi pi_start(const i16* xs, int first, int second) {
  i32 both;
  __builtin_memcpy(&both, xs, 4);
  return _mm512_madd_epi16(_mm512_set1_epi32(both), _mm512_set1_epi32(PAIR_OF(-first, -second)));
}
static inline pw pw_load_q4_0(const uint8_t* quantized, int part) {
  pw w;
  (void)part;
  UNROLL for (int i = 0; i < 4; i++) {
    __m512i both = _mm512_loadu_si512(quantized + 64 * i), mask = _mm512_set1_epi8(15);
    w.q[i] = _mm512_and_si512(both, mask);
    w.q[4 + i] = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
  }
  return w;
}
static inline pw pw_load_q8_0(const uint8_t* quantized, int part) {
  pw w;
  (void)part;
  UNROLL for (int i = 0; i < 8; i++) {
    w.q[i] = _mm512_xor_si512(_mm512_loadu_si512(quantized + 64 * i), _mm512_set1_epi8(-128));
  }
  return w;
}
static inline void look_up(i8* to, const uint8_t* codes, const i8* table) {
  __m512i both = _mm512_loadu_si512(codes), mask = _mm512_set1_epi8(15);
  __m512i values = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)table));
  __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
  _mm512_storeu_si512(to, _mm512_shuffle_epi8(values, _mm512_and_si512(both, mask)));
  _mm512_storeu_si512(to + 256, _mm512_shuffle_epi8(values, high));
}
typedef __m512i pb;
enum { LOW_CODES = 1, OFFSET_15 = 128, OFFSET_63 = 128, OFFSET_127 = 128 };
static inline pb pb_load(const uint8_t* p) { return _mm512_loadu_si512(p); }
static inline pb pb_set(int i) { return _mm512_set1_epi8((char)i); }
static inline pb pb_shift(pb v, int n) { return n ? _mm512_srli_epi16(v, (unsigned)n) : v; }
static inline pb pb_table(const i8* table, int offset) {
  pb values = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)table));
  return _mm512_add_epi8(values, pb_set(offset));
}
static inline pb pb_look_up(pb table, pb codes) { return _mm512_shuffle_epi8(table, codes); }
static inline __m512i moved(__m512i bits, int left) {
  return left < 0 ? _mm512_srli_epi16(bits, (unsigned)-left)
                  : _mm512_slli_epi16(bits, (unsigned)left);
}
static inline pw pw_load_5(const uint8_t* quantized, int part) {
  pw w = pw_load_q4_0(quantized, part);
  __m512i high = _mm512_loadu_si512(quantized + 256), mask = _mm512_set1_epi8(16);
  UNROLL for (int i = 0; i < 8; i++) {
    w.q[i] = _mm512_or_si512(w.q[i], _mm512_and_si512(moved(high, 4 - i), mask));
  }
  return w;
}
static inline pw pw_load_6(const uint8_t* quantized, int part) {
  pw w = pw_load_q4_0(quantized, part);
  UNROLL for (int i = 0; i < 8; i++) {
    __m512i high = _mm512_loadu_si512(quantized + 256 + 64 * (i / 4)), mask = _mm512_set1_epi8(48);
    w.q[i] = _mm512_or_si512(w.q[i], _mm512_and_si512(moved(high, 4 - 2 * (i % 4)), mask));
  }
  return w;
}
static inline pi dot_four(pi sum, __m512i quantized, const i8* x) {
  i32 four;
  __builtin_memcpy(&four, x, 4);
  return _mm512_dpbusd_epi32(sum, quantized, _mm512_set1_epi32(four));
}
#define QUANTIZED_OF(w, i) w.q[i]

/* Wide tiles: values of two panels, four columns at a time, each with as many rows of activations
 * as there are registers for their sums. An activation that is loaded is multiplied twice. */
enum { WIDE_PANELS = 2, WIDE_COLUMNS = 6 };
static inline __m512i wide_q4_0(const uint8_t* quantized, int i) {
  __m512i both = _mm512_loadu_si512(quantized + 64 * (i / 2)), mask = _mm512_set1_epi8(15);
  return _mm512_and_si512(i % 2 ? _mm512_srli_epi16(both, 4) : both, mask);
}
static inline __m512i wide_q8_0(const uint8_t* quantized, int i) {
  return _mm512_xor_si512(_mm512_loadu_si512(quantized + 64 * i), _mm512_set1_epi8(-128));
}
/* where their activations are */
static inline int place_q4_0(int i) { return i % 2 * 16 + i / 2 * 4; }
static inline int place_q8_0(int i) { return 4 * i; }
/* The initial sums of up to STARTS blocks, for some rows of activations with `stride` blocks each:
 * computed once for all weights, then broadcast by a load */
enum { STARTS = 256 };
static inline void wide_fill(i32* starts, const i16* xs, int64_t stride, int64_t blocks,
                             int columns, int offset) {
  for (int c = 0; c < columns; c++, starts += STARTS, xs += 2 * stride) {
    int64_t count = blocks < STARTS ? blocks : STARTS;
    for (int64_t b = 0; b < count; b += 16) {
      __mmask16 some = count - b < 16 ? mask_of(count - b) : 0xffff;
      __m512i both = _mm512_maskz_loadu_epi32(some, xs + 2 * b);
      __m512i sums = _mm512_madd_epi16(both, _mm512_set1_epi16((i16)-offset));
      _mm512_storeu_si512(starts + b, sums);
    }
  }
}
static inline pi wide_start(i32 start) { return _mm512_set1_epi32(start); }
static inline __m512i four_of(const i8* x) {
  i32 four;
  __builtin_memcpy(&four, x, 4);
  return _mm512_set1_epi32(four);
}
static inline pi wide_dot(pi sum, __m512i quantized, __m512i four) {
  return _mm512_dpbusd_epi32(sum, quantized, four);
}

#include "isa/shared/fours.h"
#include "isa/shared/rows_alike.h"
#include "isa/shared/codes.h"
#include "isa/shared/whole.h"
static inline pf pf_load_low4(const uint8_t* p, int part) {
  (void)part;
  return vf_load_low4(p);
}
static inline pf pf_load_high4(const uint8_t* p, int part) {
  vf numbers =
      _mm512_setr_ps(0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240);
  (void)part;
  return _mm512_permutexvar_ps(_mm512_srli_epi32(_mm512_cvtepu8_epi32(load_16(p)), 4), numbers);
}

#include "isa/shared/dots.h"
#include "isa/shared/dots_of_fours.h"

#endif
