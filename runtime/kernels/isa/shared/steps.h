/* Only the engines of WebAssembly need these: isa/wasm/simd.h */
#ifndef vf_constant
static inline vf vf_constant(const float* p) { return vf_set(*p); }
static inline vf vf_step(vf x) { return x; }
#endif

/* y 2^n for n from -152 to 129, given n + 1.5 * 2^23 + 254. 2^n is multiplied in two halves, so
 * that results can be subnormal: they are rounded once. Each half is about n / 2 with its
 * exponent's bias of 127; the bits of 1.5 * 2^23 are shifted out. */
#ifndef vf_scaled
static inline vf vf_scaled(vf y, vf shifted) {
  vi biased = vi_cast(shifted), half = vi_shr(biased, 1);
  vf scaled = vf_mul(y, vf_cast(vi_shl(half, 23)));
  return vf_mul(scaled, vf_cast(vi_shl(vi_sub(biased, half), 23)));
}
#endif
