/* The library's interface: what Python calls through ctypes. */
#ifndef HALFBYTE_RUN_H
#define HALFBYTE_RUN_H

#include "kernel.h"

#ifdef _WIN32
#define HB_EXPORT __declspec(dllexport)
#else
#define HB_EXPORT __attribute__((visibility("default")))
#endif

typedef struct hb_pool hb_pool;

/* One line a kernel: its name, then fields as kind:type:name (out, in) or kind:name (int, float).
 */
HB_EXPORT const char* hb_kernel_list(void);

/* Names of the capabilities of isa/caps.h, one a line. */
HB_EXPORT const char* hb_capability_list(void);

/* Name of the index-th instruction set compiled in, best first; NULL after the last. */
HB_EXPORT const char* hb_isa_name(i32 index);
/* Its kernels; NULL where this machine cannot run them. */
HB_EXPORT const hb_table* hb_open(const char* name);
/* Its capabilities, as many as hb_capability_list() names and in that order. */
HB_EXPORT void hb_describe(const hb_table* table, i32* capabilities);

/* A clock that is cheap to read; its unit is the machine's, 0 where there is none. */
HB_EXPORT uint64_t hb_ticks(void);

/* Run instructions [first, last): set the patched slots from the registers, then execute. With a
 * pool, its threads share the work; with `profile`, each instruction's ticks are added up. */
HB_EXPORT void hb_run(const hb_table* table, hb_instruction* program, i32 first, i32 last,
                      const hb_patch* patches, i32 n_patches, const i32* registers, hb_pool* pool,
                      i32 profile);

/* Bytes of a pool; zeroed and aligned to 64 it is ready. */
HB_EXPORT i32 hb_pool_size(void);
/* Announce a run, which must follow; how many helpers are inside and will see it. */
HB_EXPORT i32 hb_pool_announce(hb_pool* pool);
/* A helper's work: share runs until `spins` turns without one. Non-zero when the pool is stopped.
 */
HB_EXPORT i32 hb_help(hb_pool* pool, i32 spins);
/* Send all helpers home. */
HB_EXPORT void hb_pool_stop(hb_pool* pool);

#endif
