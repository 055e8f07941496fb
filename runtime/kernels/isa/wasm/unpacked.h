/* Part of isa/wasm/packed.h: products of unpacked values (linear/unpacked.inc), so that a tile
 * consists only of loads, products and sums in fifteen registers: as 16-bit integers, pairs of two
 * columns, or, if byte products are fast, four-bit values as bytes. */
#ifndef HALFBYTE_ISA_WASM_UNPACKED_H
#define HALFBYTE_ISA_WASM_UNPACKED_H

#ifdef HB_WASM_RELAXED
#define UNPACKED_BYTES(q4) ((q4) ? 1 : 2)
#else
#define UNPACKED_BYTES(q4) ((void)(q4), 2)
#endif
/* Rows of activations for which weights are unpacked once, a unit's; four of them side by side,
 * sixteen bytes of each, so that a tile reads two streams */
enum { UNPACKED_ROWS = UNIT_COLUMNS, UNPACKED_BESIDE = 4 };
/* Where sixteen values go, those of four columns of part i % 4: two parts and all columns are a
 * stream, four columns of 64 bytes, or 32. */
static inline uint8_t* unpacked_at(uint8_t* to, int i, int bytes) {
  return to + ((i & 2) * 4 * UNPACKED_SPAN + i / 4 * 32) * bytes + (i & 1) * 16;
}
static inline void unpack_sixteen(uint8_t* to, v128_t quantized, int bytes) {
  if (bytes == 1) {
    wasm_v128_store(to, quantized);
    return;
  }
  pairs wide = pairs_of(quantized);
  wasm_v128_store(to, wide.even);
  wasm_v128_store(to + 32, wide.odd);
}
/* Unpacks a block of 32 columns of sixteen rows; 8 is subtracted for Q4_0 in 16 bits. */
static inline void unpack_block(uint8_t* block, const uint8_t* quantized, int q4) {
  int bytes = UNPACKED_BYTES(q4);
  v128_t less = wasm_i8x16_splat(bytes == 1 ? 0 : 8), mask = wasm_i8x16_splat(15);
  for (int i = 0; i < (q4 ? 16 : 32); i++, quantized += 16) {
    uint8_t* to = unpacked_at(block, i, bytes);
    v128_t both = wasm_v128_load(quantized), low = both;
    if (q4) {
      low = wasm_i8x16_sub(wasm_v128_and(both, mask), less);
      unpack_sixteen(to + 128 * bytes, wasm_i8x16_sub(wasm_u8x16_shr(both, 4), less), bytes);
    }
    unpack_sixteen(to, low, bytes);
  }
}
/* Each row's share of the scale `top`, in 1 / 16384, in both halves */
static inline pi pi_shares(pf d, pf top) {
  v128_t share = wasm_f32x4_mul(wasm_f32x4_div(d, top), wasm_f32x4_splat(16384));
  share = wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest(share));
  return wasm_v128_or(wasm_i32x4_shl(share, 16), wasm_v128_and(share, wasm_i32x4_splat(0xffff)));
}
/* Eight-bit values times 128 and their rows' shares */
static inline void widen_block(uint8_t* block, const uint8_t* quantized, const pi* shares) {
#ifdef HB_WASM_RELAXED
#define MULTIPLY_HIGH wasm_i16x8_relaxed_q15mulr
#else
#define MULTIPLY_HIGH wasm_i16x8_q15mulr_sat
#endif
  for (int four = 0; four < 8; four++, block += 64, quantized += 64) {
    UNROLL for (int p = 0; p < 4; p++) {
      uint8_t* to = unpacked_at(block, p, 2);
      v128_t both = wasm_v128_load(quantized + 16 * p);
      v128_t even = wasm_i16x8_shl(both, 8), odd = wasm_v128_and(both, wasm_i16x8_splat(-256));
      wasm_v128_store(to, MULTIPLY_HIGH(even, shares[p]));
      wasm_v128_store(to + 32, MULTIPLY_HIGH(odd, shares[p]));
    }
  }
}
#undef MULTIPLY_HIGH
/* Unpacks a row of activations, one of four side by side; columns are a multiple of 32. */
static inline void unpack_activations(i16* to, const i8* x, int columns, int q4) {
  for (int i = 0; i < columns; i += 16, to += 32) {
    v128_t quantized = wasm_v128_load(x + i);
    if (UNPACKED_BYTES(q4) == 1) {
      wasm_v128_store(to, quantized);
    } else {
      pairs wide = pairs_of(quantized);
      wasm_v128_store(to, wasm_i32x4_shuffle(wide.even, wide.odd, 0, 4, 1, 5));
      to += 32;
      wasm_v128_store(to, wasm_i32x4_shuffle(wide.even, wide.odd, 2, 6, 3, 7));
    }
  }
}
/* dots[4 p + c] += products of part p with row c: two columns in each 32 bits of a stream, or four
 * as bytes, eight or sixteen in a step. Loads have constant offsets. */
#define UNPACKED_COLUMN(multiply, c, place) \
  {                                         \
    v128_t row = SPLAT(x, place);           \
    multiply(&dots[c], first, row);         \
    multiply(&dots[4 + (c)], second, row);  \
  }
#define UNPACKED_STEP(multiply, w_first, w_second, x0, x1, x2, x3) \
  {                                                                \
    v128_t first = LOADED("v128.load", w, w_first);                \
    v128_t second = LOADED("v128.load", w, w_second);              \
    UNPACKED_COLUMN(multiply, 0, x0)                               \
    UNPACKED_COLUMN(multiply, 1, x1)                               \
    UNPACKED_COLUMN(multiply, 2, x2)                               \
    UNPACKED_COLUMN(multiply, 3, x3)                               \
  }
#define UNPACKED_STEPS(multiply)                     \
  do {                                               \
    UNPACKED_STEP(multiply, 0, 16, 0, 16, 32, 48)    \
    UNPACKED_STEP(multiply, 32, 48, 4, 20, 36, 52)   \
    UNPACKED_STEP(multiply, 64, 80, 8, 24, 40, 56)   \
    UNPACKED_STEP(multiply, 96, 112, 12, 28, 44, 60) \
    w += 128;                                        \
    x += 64;                                         \
  } while (x < end);
INLINE void dot_unpacked_16(pi* dots, const uint8_t* w, const i16* numbers, int columns) {
  UNROLL for (int i = 0; i < 8; i++) { dots[i] = wasm_i32x4_splat(0); }
  const i8 *x = (const i8*)numbers, *end = x + 8 * columns;
  UNPACKED_STEPS(dot_pairs)
}
#ifdef HB_WASM_RELAXED
INLINE void dot_unpacked_4(pi* dots, const uint8_t* w, const i8* x, const i32* starts) {
  UNROLL for (int i = 0; i < 8; i++) {
    dots[i] = wasm_v128_load32_splat(starts + i % 4 * (UNPACKED_SPAN / 32));
  }
  const i8* end = x + 4 * 32;
  UNPACKED_STEPS(dot_bytes)
  UNROLL for (int i = 0; i < 8; i++) { dots[i] = wasm_i32x4_extadd_pairwise_i16x8(dots[i]); }
}
#else
#define dot_unpacked_4(dots, w, x, starts) /* never used: everything is 16 bits */
#endif
#undef UNPACKED_STEPS
#undef UNPACKED_STEP
#undef UNPACKED_COLUMN

#endif
