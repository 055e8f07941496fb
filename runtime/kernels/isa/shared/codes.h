/* Codes of isa/scalar/packed.h's order, looked up in registers, for linear/codes_rows.inc.
 *
 *   pb  a register of bytes, with the operators of C
 *   pb_load(p), pb_set(i), pb_shift(v, n): bytes from p on, all i, v shifted right, where bits of
 *       the next byte may come in
 *   pb_table(table, offset), pb_look_up(table, v): a table of sixteen values, and its values for
 *       codes; if LOW_CODES is 1, bits 4 to 6 of a code do not count */
#ifndef HALFBYTE_ISA_SHARED_CODES_H
#define HALFBYTE_ISA_SHARED_CODES_H

/* Values of 32 codes of `bits` bits of each row, plus `offset`; codes of two bits are the values,
 * or four times those where TWOS_AS_FOURS is 1, in every second pair of registers. */
INLINE pw pw_load_codes(const uint8_t* quantized, int part, const i8* table, int offset, int bits) {
  pb four[4], values = pb_table(table, offset);
  pw w;
  UNROLL for (int k = 0; k < bits; k++) {
    four[k] = pb_load(quantized + 64 * k + 64 / PARTS * part);
  }
  if (bits == 3) {
    four[3] = (pb_shift(four[0], 3) & pb_set(0x11)) | (pb_shift(four[1], 2) & pb_set(0x22)) |
              (pb_shift(four[2], 1) & pb_set(0x44));
    UNROLL for (int k = 0; k < 3; k++) { four[k] &= pb_set(0x77); }
  }
  UNROLL for (int k = 0; k < 8; k++) {
    int fours = bits == 2 && TWOS_AS_FOURS && k / 2 % 2;
    int shift = bits == 2 ? k / 2 * 2 - 2 * fours : k / 4 * 4;
    pb code = pb_shift(four[bits == 2 ? k % 2 : k % 4], shift);
    if (bits != 3 || !LOW_CODES) {
      code &= pb_set(bits == 2 ? 3 << 2 * fours : 15);
    }
    w.q[k] = (__typeof__(w.q[k]))(bits == 2 ? code : pb_look_up(values, code));
  }
  return w;
}

/* dots += the products of the halves of a block */
#define HALVES(name, dot_half)                                                                     \
  INLINE void name(pi* dots, const pw* w, const i8* x) {                                           \
    UNROLL for (int half = 0; half < 2; half++) { dots[half] = dot_half(w, half, x, dots[half]); } \
  }
HALVES(pi_add_halves_3, pi_dot_half_3)
HALVES(pi_add_halves_31, pi_dot_half_31)
HALVES(pi_add_halves_127, pi_dot_half_127)
HALVES(pi_add_halves_255, pi_dot_half_255)
#undef HALVES

#endif
