/* Floats of packed rows, for a part of all sixteen rows; described in isa/scalar/packed.h */
#ifndef HALFBYTE_ISA_SHARED_WHOLE_H
#define HALFBYTE_ISA_SHARED_WHOLE_H

static inline pf pf_zero(void) { return vf_set(0); }
static inline pf pf_scales(const f16* d, int part) {
  (void)part;
  return vf_load_f16(d);
}
static inline pf pf_load(const float* p) { return vf_load(p); }
static inline pf pf_load_i8(const i8* p, int part) {
  (void)part;
  return vf_load_i8(p);
}
static inline pf pf_add_scaled(pf sum, pf v, float by) {
  return vf_add(sum, vf_mul(v, vf_set(by)));
}
static inline pf pf_scaled(pf scale, pi dots) { return vf_mul(scale, vf_convert(dots)); }
static inline pf pf_add_product(pf sum, pf scale, float by, pi dots) {
  return vf_add(sum, vf_mul(vf_mul(scale, vf_set(by)), vf_convert(dots)));
}
static inline pf pf_set(float x) { return vf_set(x); }
static inline pf pf_mul(pf a, pf b) { return vf_mul(a, b); }
static inline pf pf_add(pf a, pf b) { return vf_add(a, b); }
static inline pf pf_max(pf a, pf b) { return vf_max(a, b); }
static inline pf pf_fma(pf a, pf b, pf c) { return vf_fma(a, b, c); }
static inline pf pf_mul_add(pf a, pf b, pf c) { return vf_add(c, vf_mul(a, b)); }
static inline void pf_store(float* p, pf v) { vf_store(p, v); }
static inline void pf_store_sum(float* p, const float* r, pf v) {
  vf_store(p, r ? vf_add(vf_load(r), v) : v);
}

#endif
