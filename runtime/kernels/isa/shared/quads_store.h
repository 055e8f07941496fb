/* quads_store, where a strip has an image's bytes as they are. */
#ifndef HALFBYTE_ISA_SHARED_QUADS_STORE_H
#define HALFBYTE_ISA_SHARED_QUADS_STORE_H

static inline void quads_store(uint8_t* to, const uint8_t* from, int64_t count, uint8_t flip) {
  for (int64_t i = 0; i < count; i++) {
    to[i] = from[i] ^ flip;
  }
}

#endif
