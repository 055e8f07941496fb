/* Types that Python, the runner and the kernels share. No libc, no allocation, no globals. */
#ifndef HALFBYTE_MACHINE_H
#define HALFBYTE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

/* A loop of a few turns over values that should stay in registers. */
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* A function whose numbers of things are constants where it is called. */
#define INLINE static inline __attribute__((always_inline))
/* Browsers fetch the file: what nobody waits for is small there, and what many kernels need is
 * there once. */
#ifdef __wasm__
#define SMALL __attribute__((minsize))
#define SHARED __attribute__((noinline)) static
#else
#define SMALL
#define SHARED static inline
#endif

typedef float f32;
typedef int8_t i8;
typedef int32_t i32;
typedef uint16_t f16;  /* IEEE binary16, as bits */
typedef uint16_t bf16; /* upper half of an IEEE binary32 */

/* Layout: 32 weights w = d (q - 8); qs[j] holds q[j] in its low four bits, q[j + 16] in its high
 * ones. */
typedef struct {
  f16 d;
  uint8_t qs[16];
} q4_0;
_Static_assert(sizeof(q4_0) == 18, "GGUF's Q4_0 block");

/* Layout: 32 weights w = d q. */
typedef struct {
  f16 d;
  i8 qs[32];
} q8_0;
_Static_assert(sizeof(q8_0) == 34, "GGUF's Q8_0 block");

/* Layout: packed, sixteen rows lie together, block after block: the scales of all rows, then codes
 * of four columns a row at a time. qs[i][r][c] is byte 4 i + c of row r's block; nothing else
 * changes. Rows behind the last sixteen lie as in q4_0. */
typedef struct {
  f16 d[16];
  uint8_t qs[4][16][4];
} q4_0_r16;
_Static_assert(sizeof(q4_0_r16) == 16 * sizeof(q4_0), "a permutation");

/* Layout: the same of q8_0; qs[i][r][c] is code 4 i + c of row r's block. */
typedef struct {
  f16 d[16];
  i8 qs[8][16][4];
} q8_0_r16;
_Static_assert(sizeof(q8_0_r16) == 16 * sizeof(q8_0), "a permutation");

/* Every field of an instruction takes one 8-byte slot, on 32-bit machines too, so that Python fills
 * in instructions for each in the same way. */
#define HB_SLOTS 14

typedef struct {
  i32 kernel;     /* index in kernels.h */
  i32 chunk;      /* units a thread claims at once; the runner's own */
  uint64_t ticks; /* time spent, when profiling: summed over runs */
  uint64_t slot[HB_SLOTS];
} hb_instruction;
_Static_assert(sizeof(hb_instruction) == 128, "two cache lines");

/* Before a run, slot[slot] of an instruction is set to a register's value (a named size). */
typedef struct {
  i32 instruction, slot, reg;
} hb_patch;

#endif
