/* Eight bytes at once, as an integer whose lowest byte is the first */
#ifndef HALFBYTE_EIGHTS_H
#define HALFBYTE_EIGHTS_H

#include "machine.h"

typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef uint64_t eight;
static inline eight load_eight(const uint8_t* p) {
  eight bytes;
  __builtin_memcpy(&bytes, p, sizeof(bytes));
  return bytes;
}
static inline void store_eight(uint8_t* p, eight bytes) {
  __builtin_memcpy(p, &bytes, sizeof(bytes));
}
/* `byte` in all of them */
static inline eight all_eight(int byte) { return (eight)byte * 0x0101010101010101u; }
/* `bits` bits of each, from `shift` on */
static inline eight bits_of_eight(const uint8_t* p, int shift, int bits) {
  return load_eight(p) >> shift & all_eight((1 << bits) - 1);
}
/* Eight bits as the lowest ones of bytes */
static inline eight spread_bits(int bits) {
  eight each = all_eight(bits) & 0x8040201008040201u;
  return (each + all_eight(0x7f)) >> 7 & all_eight(1);
}

#endif
