/* Products of a block of packed rows, for instruction sets whose `dot_four` takes the values of all
 * formats */
#ifndef HALFBYTE_ISA_SHARED_FOURS_H
#define HALFBYTE_ISA_SHARED_FOURS_H

/* start + the products of columns 4 * begin to 4 * end - 1 */
INLINE pi dot_fours(const pw* w, int begin, int end, const i8* x, pi start) {
  pi sum = start;
  UNROLL for (int i = begin; i < end; i++) { sum = dot_four(sum, w->q[i], x + 4 * i); }
  return sum;
}
static inline pi pi_dot_q4_0(const pw* w, const i8* x, pi start) {
  return dot_fours(w, 0, 8, x, start);
}
static inline pi pi_dot_q8_0(const pw* w, const i8* x, pi start) {
  return dot_fours(w, 0, 8, x, start);
}
static inline pi pi_dot_5(const pw* w, const i8* x, pi start) {
  return dot_fours(w, 0, 8, x, start);
}
static inline pi pi_dot_half(const pw* w, int half, const i8* x, pi start) {
  return dot_fours(w, 4 * half, 4 * half + 4, x, start);
}
#define pi_dot_half_q8_0 pi_dot_half

#endif
