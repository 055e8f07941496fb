/* Products of a block with several rows of activations, one row at a time (isa/scalar/packed.h) */
#ifndef HALFBYTE_ISA_SHARED_DOTS_H
#define HALFBYTE_ISA_SHARED_DOTS_H

#define DOTS(type)                                                                          \
  INLINE void pi_dots_##type(pi* dots, const pw* w, int parts, const i8* x, int64_t stride, \
                             int columns, const pi* starts) {                               \
    UNROLL for (int p = 0; p < parts; p++) {                                                \
      UNROLL for (int c = 0; c < columns; c++) {                                            \
        dots[p * columns + c] = pi_dot_##type(&w[p], x + c * stride, starts[c]);            \
      }                                                                                     \
    }                                                                                       \
  }
DOTS(q8_0)
DOTS(q4_0)
DOTS(5)
#undef DOTS
#define DOTS(type)                                                                     \
  INLINE void pi_dots_##type(pi* dots, const pw* w, int parts, int half, const i8* x,  \
                             int64_t stride, int columns, const pi* starts) {          \
    UNROLL for (int p = 0; p < parts; p++) {                                           \
      UNROLL for (int c = 0; c < columns; c++) {                                       \
        dots[p * columns + c] = pi_dot_##type(&w[p], half, x + c * stride, starts[c]); \
      }                                                                                \
    }                                                                                  \
  }
DOTS(half)
DOTS(half_q8_0)
#undef DOTS

#endif
