/* What a table's source needs around the bodies: argument structs and the BODY macro. */
#ifndef HALFBYTE_KERNEL_H
#define HALFBYTE_KERNEL_H

#include "machine.h"

/* One field, one slot of an instruction (see machine.h). */
#define OUT(type, name) \
  union {               \
    type* name;         \
    uint64_t name##_;   \
  };
#define IN(type, name) \
  union {              \
    const type* name;  \
    uint64_t name##_;  \
  };
#define INT(name) int64_t name;
#define FLOAT(name)   \
  union {             \
    f32 name;         \
    uint64_t name##_; \
  };
#define KERNEL(name, units, grain, cost, fields) \
  typedef struct {                               \
    fields                                       \
  } name##_args;                                 \
  _Static_assert(sizeof(name##_args) <= HB_SLOTS * 8, "too many fields");
#include "kernels.h"
#undef KERNEL
#undef OUT
#undef IN
#undef INT
#undef FLOAT

enum {
#define KERNEL(name, units, grain, cost, fields) HB_##name,
#include "kernels.h"
#undef KERNEL
  HB_KERNELS
};

typedef void hb_kernel(const void* arguments, int64_t begin, int64_t end);

/* The kernels compiled for one instruction set, and its capabilities in the order of isa/caps.h. */
typedef struct {
  hb_kernel* run[HB_KERNELS];
  void (*describe)(i32* capabilities);
} hb_table;

/* Opens the body of a kernel, which runs units [begin, end) of its arguments `a`; SMALL_BODY that
 * of one that nobody waits for. */
#define BODY(name) BODY_WITH(name, )
#define SMALL_BODY(name) BODY_WITH(name, SMALL)
#define BODY_WITH(name, attribute) BODY_NAMED(name, attribute)
#define BODY_NAMED(name, attribute)                                                           \
  attribute static inline void name##_body(const name##_args* a, int64_t begin, int64_t end); \
  attribute static void name(const void* arguments, int64_t begin, int64_t end) {             \
    name##_body(arguments, begin, end);                                                       \
  }                                                                                           \
  static inline void name##_body(const name##_args* a, int64_t begin, int64_t end)

/* Code that is the same for several types stands in a file of its own, <file>_body.inc, which is
 * included once for each, with TYPE and other parameters defined; at its end it undefines them.
 * There, OF(tile) is the name tile_<TYPE>. */
#define OF(name) JOIN(name##_, TYPE)
#define R16(name) JOIN(name, _r16)
#define ARGS(kernel) JOIN(kernel, _args)
#define JOIN(first, second) JOINED(first, second)
#define JOINED(first, second) first##second

#endif
