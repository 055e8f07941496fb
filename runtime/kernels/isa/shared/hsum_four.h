/* vf_hsum_four, one sum at a time */
#ifndef HALFBYTE_ISA_SHARED_HSUM_FOUR_H
#define HALFBYTE_ISA_SHARED_HSUM_FOUR_H

/* the sums of four vectors */
static inline void vf_hsum_four(float* sums, const vf* v) {
  for (int i = 0; i < 4; i++) {
    sums[i] = vf_hsum(v[i]);
  }
}

#endif
