/* The products of int8 attention, by those of quads */
#ifndef HALFBYTE_ISA_SHARED_DOTS_OF_FOURS_H
#define HALFBYTE_ISA_SHARED_DOTS_OF_FOURS_H

/* Adds products of `blocks` blocks of sixteen rows, `apart` bytes apart, with rows of x. Rows and
 * fours of x are `row` and `step` bytes apart. */
INLINE void dots_of_fours(vi (*dots)[QUANTIZED_BLOCKS], const i8* quantized, int blocks,
                          int64_t apart, const uint8_t* x, int64_t row, int64_t step,
                          int64_t fours) {
  for (int64_t four = 0; four < fours; four++) {
    vq w[QUANTIZED_BLOCKS];
    UNROLL for (int b = 0; b < blocks; b++) { w[b] = vq_load(quantized + b * apart + four * 64); }
    UNROLL_INT8 for (int c = 0; c < INT8_ROWS; c++) {
      UNROLL for (int b = 0; b < blocks; b++) {
        dots[c][b] = vi_dot_quads(dots[c][b], w[b], x + c * row + four * step);
      }
    }
  }
}

#endif
