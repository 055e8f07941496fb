/* quads_store for instruction sets whose strips hold an image's bytes unchanged */
#ifndef HALFBYTE_ISA_SHARED_QUADS_STORE_H
#define HALFBYTE_ISA_SHARED_QUADS_STORE_H

static inline void quads_store(uint8_t* to, const uint8_t* from, int64_t count, uint8_t flip) {
  for (int64_t i = 0; i < count; i++) {
    to[i] = from[i] ^ flip;
  }
}

#endif
