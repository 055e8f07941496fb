/* The range and zero point of quantized results: see store_quantized */
#ifndef HALFBYTE_ISA_SHARED_QUANTIZED_RANGE_H
#define HALFBYTE_ISA_SHARED_QUANTIZED_RANGE_H

typedef struct {
  vf lo, hi; /* minus `zero` */
  vi zero;
} quantized_range;
static inline quantized_range quantized_range_of(vf lo, vf hi, vi zero) {
  return (quantized_range){lo, hi, zero};
}

#endif
