/* The interface of the library: the functions that Python calls through ctypes. */
#ifndef HALFBYTE_RUN_H
#define HALFBYTE_RUN_H

#include "kernel.h"

#ifdef _WIN32
#define HB_EXPORT __declspec(dllexport)
#else
#define HB_EXPORT __attribute__((visibility("default")))
#endif

typedef struct hb_pool hb_pool;

/* One line per kernel: its name, then its fields as kind:type:name (out, in) or kind:name (int,
 * float). */
HB_EXPORT const char* hb_kernel_list(void);

/* Names of the capabilities of isa/caps.h, one per line. */
HB_EXPORT const char* hb_capability_list(void);

/* Name of the index-th compiled instruction set, best first; NULL after the last. */
HB_EXPORT const char* hb_isa_name(i32 index);
/* The table of an instruction set; NULL if this machine cannot run it. */
HB_EXPORT const hb_table* hb_open(const char* name);
/* Writes a table's capabilities, in the order of hb_capability_list(). */
HB_EXPORT void hb_describe(const hb_table* table, i32* capabilities);

/* A clock that is cheap to read, in units of the machine; always 0 if there is none. */
HB_EXPORT uint64_t hb_ticks(void);

/* Runs the instructions [first, last): copies registers into the patched slots, then executes. With
 * a pool, its threads share the work; with `profile`, each instruction's ticks are added up.
 * Returns `last`; or, after a second in which a helper has not finished its part of an instruction,
 * that instruction, or the one before if stages of it are left: the caller goes on with the next
 * one once hb_pool_wait has returned 1. */
HB_EXPORT i32 hb_run(const hb_table* table, hb_instruction* program, i32 first, i32 last,
                     const hb_patch* patches, i32 n_patches, const i32* registers, hb_pool* pool,
                     i32 profile);

/* Size of a pool in bytes. Memory of that size is a pool if it is zeroed and aligned to 64. */
HB_EXPORT i32 hb_pool_size(void);
/* Announces a run, which must follow; returns the number of awake helpers, which will see it. */
HB_EXPORT i32 hb_pool_announce(hb_pool* pool);
/* The work of a helper thread: shares runs until `spins` rounds pass without one. Returns non-zero
 * when the pool is stopped. */
HB_EXPORT i32 hb_help(hb_pool* pool, i32 spins);
/* Limits the helpers that share runs; 0: all may. */
HB_EXPORT void hb_pool_limit(hb_pool* pool, i32 helpers);
/* Waits for the helpers' parts of an instruction; returns 0 after a second in which they do not
 * end. */
HB_EXPORT i32 hb_pool_wait(hb_pool* pool);
/* Wakes the helpers that sleep in hb_serve. */
HB_EXPORT void hb_pool_wake(hb_pool* pool);
#ifdef __wasm__
/* The work of a helper until the pool is stopped: as hb_help, and asleep between runs. Needs shared
 * memory. */
HB_EXPORT void hb_serve(hb_pool* pool, i32 spins);
#endif
/* Makes all helpers return. */
HB_EXPORT void hb_pool_stop(hb_pool* pool);

#endif
