/* What the source of a table needs before the bodies: the argument structs and the BODY macro. */
#ifndef HALFBYTE_KERNEL_H
#define HALFBYTE_KERNEL_H

#include "machine.h"

/* One field takes one slot of an instruction (see machine.h). */
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

/* The kernels compiled for one instruction set. `describe` writes its capabilities in the order of
 * isa/caps.h. */
typedef struct {
  void (*run)(int64_t kernel, const void* arguments, int64_t begin, int64_t end);
  void (*describe)(i32* capabilities);
} hb_table;

/* Begins the body of a kernel, which runs units [begin, end) of its arguments `a`. SMALL_BODY is
 * for kernels whose speed does not matter: they are compiled for size where that counts. */
#define BODY(name) BODY_WITH(name, )
#define SMALL_BODY(name) BODY_WITH(name, SMALL)
#define BODY_WITH(name, attribute) BODY_NAMED(name, attribute)
#define BODY_NAMED(name, attribute)                                                           \
  attribute static inline void name##_body(const name##_args* a, int64_t begin, int64_t end); \
  attribute __attribute__((noinline)) static void name(const void* arguments, int64_t begin,  \
                                                       int64_t end) {                         \
    name##_body(arguments, begin, end);                                                       \
  }                                                                                           \
  static inline void name##_body(const name##_args* a, int64_t begin, int64_t end)

/* Code that is the same for several types is a file of its own, <file>_body.inc. It is included
 * once per type, with TYPE and other parameters defined, and undefines them at its end. In it,
 * OF(tile) is the name tile_<TYPE>. */
#define OF(name) JOIN(name##_, TYPE)
#define R16(name) JOIN(name, _r16)
#define ARGS(kernel) JOIN(kernel, _args)
#define JOIN(first, second) JOINED(first, second)
#define JOINED(first, second) first##second

#endif
