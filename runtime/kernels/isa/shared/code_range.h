/* What makes codes of numbers: see store_codes. */
#ifndef HALFBYTE_ISA_SHARED_CODE_RANGE_H
#define HALFBYTE_ISA_SHARED_CODE_RANGE_H

typedef struct {
  vf lo, hi; /* less `zero` */
  vi zero;
} code_range;
static inline code_range code_range_of(vf lo, vf hi, vi zero) { return (code_range){lo, hi, zero}; }

#endif
