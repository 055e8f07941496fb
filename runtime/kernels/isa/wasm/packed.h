/* The primitives of isa/scalar/packed.h, four rows in a register; described there */
#ifndef HALFBYTE_ISA_WASM_PACKED_H
#define HALFBYTE_ISA_WASM_PACKED_H

#include "isa/wasm/simd.h"

/* Engines have fifteen registers and keep the order of the file; LLVM puts all loads of an
 * expression before its products, and computes every address. Products and their loads are
 * therefore written in assembler, in order, and values are unpacked where they are used. */
typedef v128_t pf;
typedef v128_t pi;
typedef struct {
  const uint8_t* quantized;
#ifdef HB_WASM_RELAXED
  v128_t values, signs; /* tables of codes of */
  int bits;             /* so many bits */
#endif
} pw;

/* What `instruction` loads from p + offset */
#define LOADED(instruction, p, offset)                                             \
  ({                                                                               \
    v128_t loaded;                                                                 \
    __asm__ volatile("local.get %1\n\t" instruction " " #offset "\n\tlocal.set %0" \
                     : "=r"(loaded)                                                \
                     : "r"(p));                                                    \
    loaded;                                                                        \
  })
/* Four bytes, repeated four times */
#define SPLAT(p, offset) LOADED("v128.load32_splat", p, offset)
/* Keeps a constant in a register: engines build it again wherever it is written. */
static inline v128_t kept(v128_t constant) {
  __asm__("" : "+r"(constant));
  return constant;
}

static inline pi pi_start(const i16* xs, int first, int second) {
  v128_t sums = SPLAT(xs, 0), by = kept(wasm_i32x4_splat(PAIR_OF(-first, -second)));
  return first || second ? wasm_i32x4_dot_i16x8(sums, by) : wasm_i32x4_splat(0);
}
static inline pw pw_load_q4_0(const uint8_t* quantized, int part) {
  return (pw){.quantized = quantized + 16 * part};
}
#define pw_load_q8_0 pw_load_q4_0
#define pw_load_5 pw_load_q4_0
#define pw_load_6 pw_load_q4_0

SHARED void look_up(i8* to, const uint8_t* codes, const i8* table) {
  v128_t values = wasm_v128_load(table), mask = wasm_i8x16_splat(15);
  for (int i = 0; i < 64; i += 16) {
    v128_t both = wasm_v128_load(codes + i), high = wasm_u8x16_shr(both, 4);
    wasm_v128_store(to + i, wasm_i8x16_swizzle(values, wasm_v128_and(both, mask)));
    wasm_v128_store(to + i + 256, wasm_i8x16_swizzle(values, high));
  }
}

typedef struct {
  v128_t even, odd; /* 16-bit integers */
} pairs;
/* sum += products of w and x */
#define DOT(name, multiply, add)                                                            \
  static inline void name(pi* sum, v128_t w, v128_t x) {                                    \
    __asm__ volatile("local.get %2\n\tlocal.get %1\n\t" multiply "\n\tlocal.get %0\n\t" add \
                     "\n\tlocal.set %0"                                                     \
                     : "+r"(*sum)                                                           \
                     : "r"(w), "r"(x));                                                     \
  }
DOT(dot_pairs, "i32x4.dot_i16x8_s", "i32x4.add")
#ifdef HB_WASM_RELAXED
DOT(dot_bytes, "i16x8.relaxed_dot_i8x16_i7x16_s", "i16x8.add") /* w has seven bits */
static inline v128_t products_of_bytes(v128_t w, v128_t x) {
  v128_t products;
  __asm__ volatile("local.get %2\n\tlocal.get %1\n\ti16x8.relaxed_dot_i8x16_i7x16_s\n\tlocal.set %0"
                   : "=r"(products)
                   : "r"(w), "r"(x));
  return products;
}
#endif
#undef DOT
static inline pairs pairs_of(v128_t four) {
  return (pairs){wasm_i16x8_shr(wasm_i16x8_shl(four, 8), 8), wasm_i16x8_shr(four, 8)};
}

#include "isa/wasm/unpacked.h"

/* attention/quantized.inc: eight rows at a time, whose sums with four of x stay in registers */
SHARED void dots_of_fours(vi (*dots)[1], const i8* quantized, int blocks, int64_t apart,
                          const uint8_t* x, int64_t row, int64_t step, int64_t fours) {
  (void)blocks;
  (void)apart;
  for (int half = 0; half < 4; half += 2) {
    const i8* w = quantized + 16 * half;
    const uint8_t* from = x;
    v128_t sums[8];
    UNROLL for (int c = 0; c < 4; c++) {
      sums[c] = dots[c][0].q[half];
      sums[4 + c] = dots[c][0].q[half + 1];
    }
    for (int64_t four = 0; four < fours; four++, w += 64, from += step) {
      pairs first = pairs_of(LOADED("v128.load", w, 0));
      pairs second = pairs_of(LOADED("v128.load", w, 16));
      UNROLL for (int c = 0; c < 4; c++) {
        v128_t even = SPLAT(from + c * row, 0), odd;
        dot_pairs(&sums[c], first.even, even);
        dot_pairs(&sums[4 + c], second.even, even);
        odd = SPLAT(from + c * row, 4);
        dot_pairs(&sums[c], first.odd, odd);
        dot_pairs(&sums[4 + c], second.odd, odd);
      }
    }
    UNROLL for (int c = 0; c < 4; c++) {
      dots[c][0].q[half] = sums[c];
      dots[c][0].q[half + 1] = sums[4 + c];
    }
  }
}

/* Values of four columns of four rows; and four activations, repeated four times */
#ifdef HB_WASM_RELAXED
typedef v128_t four_quantized;
typedef v128_t four_numbers;
static inline void dot(pi* sum, four_quantized w, four_numbers x) {
  __asm__ volatile(
      "local.get %1\n\tlocal.get %2\n\tlocal.get %0\n\t"
      "i32x4.relaxed_dot_i8x16_i7x16_add_s\n\tlocal.set %0"
      : "+r"(*sum)
      : "r"(x), "r"(w));
}
static inline four_quantized low_quantized(v128_t both) {
  return wasm_v128_and(both, kept(wasm_i8x16_splat(15)));
}
static inline four_quantized high_quantized(v128_t both) {
  return wasm_v128_and(wasm_u16x8_shr(both, 4), kept(wasm_i8x16_splat(15)));
}
/* The bits from the fourth on, to be shifted by `left` */
static inline four_quantized with_high(four_quantized low, v128_t bits, int left, int mask) {
  bits = left < 0 ? wasm_u16x8_shr(bits, (uint32_t)-left) : wasm_i16x8_shl(bits, (uint32_t)left);
  return wasm_v128_or(low, wasm_v128_and(bits, kept(wasm_i8x16_splat((int8_t)mask))));
}
static inline four_numbers numbers_of(v128_t four) { return four; }
#else
typedef pairs four_quantized;
typedef pairs four_numbers;
static inline void dot(pi* sum, four_quantized w, four_numbers x) {
  dot_pairs(sum, w.even, x.even);
  dot_pairs(sum, w.odd, x.odd);
}
static inline four_quantized low_quantized(v128_t both) {
  v128_t mask = kept(wasm_i16x8_splat(15));
  return (four_quantized){wasm_v128_and(both, mask), wasm_v128_and(wasm_u16x8_shr(both, 8), mask)};
}
static inline four_quantized high_quantized(v128_t both) {
  v128_t mask = kept(wasm_i16x8_splat(15));
  return (four_quantized){wasm_v128_and(wasm_u16x8_shr(both, 4), mask), wasm_u16x8_shr(both, 12)};
}
static inline v128_t moved(v128_t bits, int left, int mask) {
  bits = left < 0 ? wasm_u16x8_shr(bits, (uint32_t)-left) : wasm_i16x8_shl(bits, (uint32_t)left);
  return wasm_v128_and(bits, kept(wasm_i16x8_splat((int16_t)mask)));
}
static inline four_quantized with_high(four_quantized low, v128_t bits, int left, int mask) {
  return (four_quantized){wasm_v128_or(low.even, moved(bits, left, mask)),
                          wasm_v128_or(low.odd, moved(bits, left - 8, mask))};
}
static inline four_numbers numbers_of(v128_t four) { return pairs_of(four); }
#endif

/* Values of four columns of a part; for Q4_0 also of the columns 16 further on */
#define QUANTIZED_AT(w, offset) LOADED("v128.load", (w).quantized, offset)

/* Products of parts and columns with the activations at `offset` */
#define PRODUCTS(quantized, offset)                                                             \
  UNROLL for (int c = 0; c < columns; c++) {                                                    \
    four_numbers four = numbers_of(SPLAT(x + c * stride, offset));                              \
    UNROLL for (int p = 0; p < parts; p++) { dot(&dots[p * columns + c], quantized[p], four); } \
  }
#define STEPS STEP(0, 0, 16) STEP(64, 4, 20) STEP(128, 8, 24) STEP(192, 12, 28)
#define STEP(place, low_offset, high_offset)                    \
  if (columns == 1) {                                           \
    four_numbers first = numbers_of(SPLAT(x, low_offset));      \
    four_numbers second = numbers_of(SPLAT(x, high_offset));    \
    UNROLL for (int p = 0; p < parts; p++) {                    \
      v128_t both = QUANTIZED_AT(w[p], place);                  \
      dot(&dots[p], low_quantized(both), first);                \
      dot(&dots[p], high_quantized(both), second);              \
    }                                                           \
  } else {                                                      \
    four_quantized quantized[PARTS];                            \
    UNROLL for (int p = 0; p < parts; p++) {                    \
      quantized[p] = low_quantized(QUANTIZED_AT(w[p], place));  \
    }                                                           \
    PRODUCTS(quantized, low_offset)                             \
    UNROLL for (int p = 0; p < parts; p++) {                    \
      quantized[p] = high_quantized(QUANTIZED_AT(w[p], place)); \
    }                                                           \
    PRODUCTS(quantized, high_offset)                            \
  }
INLINE void pi_dots_q4_0(pi* dots, const pw* w, int parts, const i8* x, int64_t stride, int columns,
                         const pi* starts) {
  UNROLL for (int i = 0; i < parts * columns; i++) { dots[i] = starts[i % columns]; }
  STEPS
}
#undef STEP
#ifdef HB_WASM_RELAXED
/* Whether the processor lacks the instruction and the engine composes it from PMADDUBSW, which
 * saturates the sum of two products at 16 bits, and three or four others: then products of bytes
 * are added in 16 bits, or 16-bit integers are multiplied. */
SHARED int is_composed(void) {
  v128_t ones = wasm_i8x16_splat(-1), most = wasm_i8x16_splat(127), sum;
  __asm__(
      "local.get %1\n\tlocal.get %2\n\tlocal.get %1\n\t"
      "i32x4.relaxed_dot_i8x16_i7x16_add_s\n\tlocal.set %0"
      : "=r"(sum)
      : "r"(most), "r"(ones));
  return wasm_i32x4_extract_lane(sum, 0) == 0x7F7F7F7F + 2 * 32767;
}
/* A single row of activations: a lane of 16 bits holds the sum of its 16 products, 127 * 15 at
 * most. */
INLINE void composed_row_q4_0(pi* dots, const pw* w, int parts, const i8* x, pi start) {
  v128_t sums[PARTS];
  UNROLL for (int p = 0; p < parts; p++) { sums[p] = wasm_i32x4_splat(0); }
#define STEP(place, low_offset, high_offset)                             \
  {                                                                      \
    v128_t first = SPLAT(x, low_offset), second = SPLAT(x, high_offset); \
    UNROLL for (int p = 0; p < parts; p++) {                             \
      v128_t both = QUANTIZED_AT(w[p], place);                           \
      dot_bytes(&sums[p], low_quantized(both), first);                   \
      dot_bytes(&sums[p], high_quantized(both), second);                 \
    }                                                                    \
  }
  STEPS
#undef STEP
  UNROLL for (int p = 0; p < parts; p++) {
    dots[p] = wasm_i32x4_add(start, wasm_i32x4_extadd_pairwise_i16x8(sums[p]));
  }
}
#endif
#undef STEPS
#define STEPS \
  STEP(0, 0)  \
  STEP(64, 4) STEP(128, 8) STEP(192, 12) STEP(256, 16) STEP(320, 20) STEP(384, 24) STEP(448, 28)
#define ALL_QUANTIZED(make, place) \
  four_quantized quantized[PARTS]; \
  UNROLL for (int p = 0; p < parts; p++) { quantized[p] = make(QUANTIZED_AT(w[p], place)); }
/* Five and six bits: low or high four bits at `place`, the bits above them at `bits`. FOLD is where
 * a sum of 16 bits is full, whose `first` step comes next. */
#define STEP(first, place, fours, bits, left, mask, offset)                \
  {                                                                        \
    four_quantized quantized[PARTS];                                       \
    UNROLL for (int p = 0; p < parts; p++) {                               \
      four_quantized low = fours(QUANTIZED_AT(w[p], place));               \
      quantized[p] = with_high(low, QUANTIZED_AT(w[p], bits), left, mask); \
    }                                                                      \
    PRODUCTS(quantized, offset)                                            \
  }
#define FIVES                                                                                     \
  STEP(1, 0, low_quantized, 256, 4, 16, 0)                                                        \
  STEP(0, 64, low_quantized, 256, 3, 16, 4)                                                       \
  STEP(0, 128, low_quantized, 256, 2, 16, 8)                                                      \
  STEP(0, 192, low_quantized, 256, 1, 16, 12)                                                     \
  FOLD STEP(1, 0, high_quantized, 256, 0, 16, 16) STEP(0, 64, high_quantized, 256, -1, 16, 20)    \
      STEP(0, 128, high_quantized, 256, -2, 16, 24) STEP(0, 192, high_quantized, 256, -3, 16, 28) \
          FOLD
#define SIXES                                                                                    \
  if (half == 0) {                                                                               \
    STEP(1, 0, low_quantized, 256, 4, 48, 0)                                                     \
    STEP(0, 64, low_quantized, 256, 2, 48, 4)                                                    \
    FOLD STEP(1, 128, low_quantized, 256, 0, 48, 8) STEP(0, 192, low_quantized, 256, -2, 48, 12) \
        FOLD                                                                                     \
  } else {                                                                                       \
    STEP(1, 0, high_quantized, 320, 4, 48, 16)                                                   \
    STEP(0, 64, high_quantized, 320, 2, 48, 20)                                                  \
    FOLD STEP(1, 128, high_quantized, 320, 0, 48, 24)                                            \
        STEP(0, 192, high_quantized, 320, -2, 48, 28) FOLD                                       \
  }
#define FOLD
INLINE void pi_dots_5(pi* dots, const pw* w, int parts, const i8* x, int64_t stride, int columns,
                      const pi* starts) {
  UNROLL for (int i = 0; i < parts * columns; i++) { dots[i] = starts[i % columns]; }
  FIVES
}
INLINE void pi_dots_half(pi* dots, const pw* w, int parts, int half, const i8* x, int64_t stride,
                         int columns, const pi* starts) {
  UNROLL for (int i = 0; i < parts * columns; i++) { dots[i] = starts[i % columns]; }
  SIXES
}
#undef STEP
#undef FOLD
#ifdef HB_WASM_RELAXED
/* As composed_row_q4_0; a lane of 16 bits holds eight products of 127 * 31, or four of 127 * 63. */
#define STEP(first, place, fours, bits, left, mask, offset)       \
  {                                                               \
    v128_t by = SPLAT(x, offset);                                 \
    UNROLL for (int p = 0; p < parts; p++) {                      \
      v128_t low = fours(QUANTIZED_AT(w[p], place));              \
      low = with_high(low, QUANTIZED_AT(w[p], bits), left, mask); \
      if (first) {                                                \
        sums[p] = products_of_bytes(low, by);                     \
      } else {                                                    \
        dot_bytes(&sums[p], low, by);                             \
      }                                                           \
    }                                                             \
  }
#define FOLD                                                                      \
  UNROLL for (int p = 0; p < parts; p++) {                                        \
    dots[p] = wasm_i32x4_add(dots[p], wasm_i32x4_extadd_pairwise_i16x8(sums[p])); \
  }
INLINE void composed_row_5(pi* dots, const pw* w, int parts, const i8* x, pi start) {
  v128_t sums[PARTS];
  UNROLL for (int p = 0; p < parts; p++) { dots[p] = start; }
  FIVES
}
INLINE void composed_row_half(pi* dots, const pw* w, int parts, int half, const i8* x, pi start) {
  v128_t sums[PARTS];
  UNROLL for (int p = 0; p < parts; p++) { dots[p] = start; }
  SIXES
}
#undef STEP
#undef FOLD
#endif
#undef FIVES
#undef SIXES
/* Q8_0 by products of 16-bit integers: columns 0 to 4 fours - 1 */
INLINE void pair_dots(pi* dots, const pw* w, int parts, int fours, const i8* x, int64_t stride,
                      int columns, const pi* starts) {
  UNROLL for (int i = 0; i < parts * columns; i++) { dots[i] = starts[i % columns]; }
#define STEP(place, offset)                                                                        \
  {                                                                                                \
    pairs quantized[PARTS];                                                                        \
    UNROLL for (int p = 0; p < parts; p++) { quantized[p] = pairs_of(QUANTIZED_AT(w[p], place)); } \
    UNROLL for (int c = 0; c < columns; c++) {                                                     \
      pairs four = pairs_of(SPLAT(x + c * stride, offset));                                        \
      UNROLL for (int p = 0; p < parts; p++) {                                                     \
        dot_pairs(&dots[p * columns + c], quantized[p].even, four.even);                           \
        dot_pairs(&dots[p * columns + c], quantized[p].odd, four.odd);                             \
      }                                                                                            \
    }                                                                                              \
  }
  STEP(0, 0) STEP(64, 4) STEP(128, 8) STEP(192, 12) if (fours == 8) {
    STEP(256, 16) STEP(320, 20) STEP(384, 24) STEP(448, 28)
  }
#undef STEP
}
/* Half a block: 16 columns */
INLINE void pi_dots_half_q8_0(pi* dots, const pw* w, int parts, int half, const i8* x,
                              int64_t stride, int columns, const pi* starts) {
  pw upper[PARTS];
  UNROLL for (int p = 0; p < parts; p++) { upper[p].quantized = w[p].quantized + 256 * half; }
  pair_dots(dots, upper, parts, 4, x + 16 * half, stride, columns, starts);
}
#ifdef HB_WASM_RELAXED
/* A value is its low seven bits, minus 128 if it is negative: two products of seven bits */
static inline four_quantized signs(v128_t quantized) {
  return wasm_v128_and(wasm_u16x8_shr(quantized, 7), kept(wasm_i8x16_splat(1)));
}
static inline four_quantized less_signs(v128_t quantized) {
  return wasm_v128_and(quantized, kept(wasm_i8x16_splat(127)));
}
/* One column: its magnitudes, split by sign, are the seven-bit operands for all parts; weights stay
 * signed. */
INLINE void row_dots_q8_0(pi* dots, const pw* w, int parts, const i8* x) {
  i8 magnitudes[64];
  pi negative[PARTS];
  v128_t zero = wasm_i8x16_splat(0);
  UNROLL for (int i = 0; i < 32; i += 16) {
    v128_t numbers = wasm_v128_load(x + i);
    wasm_v128_store(magnitudes + i, wasm_i8x16_max(numbers, zero));
    wasm_v128_store(magnitudes + 32 + i, wasm_i8x16_max(wasm_i8x16_neg(numbers), zero));
  }
  UNROLL for (int p = 0; p < parts; p++) { dots[p] = negative[p] = wasm_i32x4_splat(0); }
#define STEP(place, offset)                                                         \
  {                                                                                 \
    v128_t more = SPLAT(magnitudes, offset), less = SPLAT(magnitudes + 32, offset); \
    UNROLL for (int p = 0; p < parts; p++) {                                        \
      v128_t quantized = QUANTIZED_AT(w[p], place);                                 \
      dot(&dots[p], more, quantized);                                               \
      dot(&negative[p], less, quantized);                                           \
    }                                                                               \
  }
  STEPS
#undef STEP
  UNROLL for (int p = 0; p < parts; p++) { dots[p] = wasm_i32x4_sub(dots[p], negative[p]); }
}
/* Several columns are unpacked: linear/unpacked.inc */
INLINE void composed_row_q8_0(pi* dots, const pw* w, int parts, const i8* x, pi start) {
  pair_dots(dots, w, parts, 8, x, 0, 1, &start);
}
INLINE void pi_dots_q8_0(pi* dots, const pw* w, int parts, const i8* x, int64_t stride, int columns,
                         const pi* starts) {
  (void)starts;
  if (columns == 1) {
    row_dots_q8_0(dots, w, parts, x);
    return;
  }
  UNROLL for (int i = 0; i < parts * columns; i++) { dots[i] = wasm_i32x4_splat(0); }
#define STEP(place, offset) {ALL_QUANTIZED(signs, place) PRODUCTS(quantized, offset)}
  STEPS
#undef STEP
  UNROLL for (int i = 0; i < parts * columns; i++) {
    dots[i] = wasm_i32x4_neg(wasm_i32x4_shl(dots[i], 7));
  }
#define STEP(place, offset) {ALL_QUANTIZED(less_signs, place) PRODUCTS(quantized, offset)}
  STEPS
#undef STEP
}

/* For codes_rows.inc. Values plus 64 are below 128; those of IQ4 are split as Q8_0's are. */
enum { OFFSET_15 = 64, OFFSET_63 = 64, OFFSET_127 = 0, APART_63 = 0, APART_127 = 1 };
INLINE pw pw_load_codes(const uint8_t* quantized, int part, const i8* table, int offset, int bits) {
  v128_t values = wasm_i8x16_add(wasm_v128_load(table), wasm_i8x16_splat((int8_t)offset));
  v128_t signs = wasm_u8x16_shr(values, 7), mask = wasm_i8x16_splat(127);
  return (pw){quantized + 16 * part, kept(wasm_v128_and(values, mask)), kept(signs), bits};
}
static inline v128_t bits_between(v128_t bytes, int shift, int mask) {
  return wasm_v128_and(wasm_u16x8_shr(bytes, (uint32_t)shift), kept(wasm_i8x16_splat(mask)));
}
/* dots += the products of the halves of a block */
INLINE void add_halves(pi* dots, const pw* w, int is_signed, const i8* x) {
  int bits = w->bits;
  v128_t mask = kept(wasm_i8x16_splat((int8_t)((1 << bits) - 1)));
  pi negative[2] = {wasm_i32x4_splat(0), wasm_i32x4_splat(0)};
#define HALF(half, codes, offset)                                                         \
  {                                                                                       \
    v128_t four = wasm_v128_and(codes, mask), by = SPLAT(x, offset);                      \
    dot(&dots[half], bits == 2 ? four : wasm_i8x16_relaxed_swizzle(w->values, four), by); \
    if (is_signed) {                                                                      \
      dot(&negative[half], wasm_i8x16_relaxed_swizzle(w->signs, four), by);               \
    }                                                                                     \
  }
#define STEP(bytes, low, high, first, second) \
  HALF(0, wasm_u16x8_shr(bytes, low), first)  \
  HALF(1, wasm_u16x8_shr(bytes, high), second)
  v128_t bytes = QUANTIZED_AT(*w, 0), between;
  STEP(bytes, 0, 4, 0, 16)
  between = bits == 3 ? bits_between(bytes, 3, 0x11) : bytes;
  if (bits == 2) {
    STEP(bytes, 2, 6, 8, 24)
  }
  bytes = QUANTIZED_AT(*w, 64);
  STEP(bytes, 0, 4, 4, 20)
  if (bits == 2) {
    STEP(bytes, 2, 6, 12, 28)
    return;
  }
  between = bits == 3 ? wasm_v128_or(between, bits_between(bytes, 2, 0x22)) : between;
  bytes = QUANTIZED_AT(*w, 128);
  STEP(bytes, 0, 4, 8, 24)
  bytes = bits == 3 ? wasm_v128_or(between, bits_between(bytes, 1, 0x44)) : QUANTIZED_AT(*w, 192);
  STEP(bytes, 0, 4, 12, 28)
#undef STEP
#undef HALF
  UNROLL for (int half = 0; is_signed && half < 2; half++) {
    dots[half] = wasm_i32x4_sub(dots[half], wasm_i32x4_shl(negative[half], 7));
  }
}
static inline void pi_add_halves_127(pi* dots, const pw* w, const i8* x) {
  add_halves(dots, w, 0, x);
}
#define pi_add_halves_3 pi_add_halves_127
#define pi_add_halves_31 pi_add_halves_127
static inline void pi_add_halves_255(pi* dots, const pw* w, const i8* x) {
  add_halves(dots, w, 1, x);
}
#else
INLINE void pi_dots_q8_0(pi* dots, const pw* w, int parts, const i8* x, int64_t stride, int columns,
                         const pi* starts) {
  pair_dots(dots, w, parts, 8, x, stride, columns, starts);
}
#endif
#undef ALL_QUANTIZED
#undef STEPS
#undef PRODUCTS

/* For the benchmark (linear/peak.inc) */
static inline pi dot_four(pi sum, four_quantized quantized, const i8* x) {
  dot(&sum, quantized, numbers_of(wasm_v128_load32_splat(x)));
  return sum;
}
static inline four_quantized quantized_of(const pw* w, int i) {
  v128_t both = wasm_v128_load(w->quantized + 64 * (i % 4));
  return i < 4 ? low_quantized(both) : high_quantized(both);
}
#define QUANTIZED_OF(w, i) quantized_of(&w, i)
static inline pf pf_zero(void) { return wasm_f32x4_splat(0); }
static inline pf pf_scales(const f16* d, int part) {
  return convert_f16(wasm_i32x4_shl(wasm_i32x4_load16x4(d + 4 * part), 13));
}
static inline pf pf_load(const float* p) { return wasm_v128_load(p); }
static inline pf pf_add_scaled(pf sum, pf v, float by) {
  return wasm_f32x4_add(sum, wasm_f32x4_mul(v, wasm_f32x4_splat(by)));
}
static inline pf pf_scaled(pf scale, pi dots) {
  return wasm_f32x4_mul(scale, wasm_f32x4_convert_i32x4(dots));
}
static inline pf pf_add_product(pf sum, pf scale, float by, pi dots) {
  v128_t scaled = wasm_f32x4_mul(scale, wasm_f32x4_splat(by));
  return wasm_f32x4_add(sum, wasm_f32x4_mul(scaled, wasm_f32x4_convert_i32x4(dots)));
}
static inline pf pf_set(float x) { return wasm_f32x4_splat(x); }
static inline pf pf_add(pf a, pf b) { return wasm_f32x4_add(a, b); }
static inline pf pf_max(pf a, pf b) { return wasm_f32x4_pmax(b, a); }
static inline pf pf_mul_add(pf a, pf b, pf c) { return wasm_f32x4_add(c, wasm_f32x4_mul(a, b)); }
#ifdef HB_WASM_RELAXED
static inline pf pf_fma(pf a, pf b, pf c) { return wasm_f32x4_relaxed_madd(a, b, c); }
#else
static inline pf pf_fma(pf a, pf b, pf c) { return pf_mul_add(a, b, c); }
#endif
static inline void pf_store(float* p, pf v) { wasm_v128_store(p, v); }
static inline void pf_store_sum(float* p, const float* r, pf v) {
  wasm_v128_store(p, r ? wasm_f32x4_add(wasm_v128_load(r), v) : v);
}

#endif
