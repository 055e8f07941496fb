/* Only the engines of WebAssembly need these: isa/wasm/simd.h */
#ifndef vf_constant
static inline vf vf_constant(const float* p) { return vf_set(*p); }
static inline vf vf_step(vf x) { return x; }
#endif
