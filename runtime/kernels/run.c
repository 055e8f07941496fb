/* Runs an array of instructions, on one thread or with helpers.
 *
 * The work of an instruction is divided into chunks, which threads claim from one atomic word. The
 * word holds the instruction, the number of its chunks and the next chunk, so that a claim is one
 * atomic addition, whose result says whether it was in time and what was claimed. The main thread
 * claims chunks too, and waits only for chunks that were claimed: a helper that is late, slow to
 * wake or absent blocks nobody. Results do not depend on which thread runs a chunk. */
#include "run.h"

#include <stdatomic.h>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

/* ---- the lists ------------------------------------------------------------------------------ */

#define OUT(type, name) " out:" #type ":" #name
#define IN(type, name) " in:" #type ":" #name
#define INT(name) " int:" #name
#define FLOAT(name) " float:" #name
#define KERNEL(name, units, grain, cost, fields) #name fields "\n"
HB_EXPORT const char* hb_kernel_list(void) {
  return
#include "kernels.h"
      ;
}
#undef KERNEL
#undef OUT
#undef IN
#undef INT
#undef FLOAT

HB_EXPORT const char* hb_capability_list(void) {
  return
#define CAPABILITY(name) #name "\n"
#define TILING(name)
#include "isa/caps.h"
#undef TILING
#undef CAPABILITY
      ;
}

HB_EXPORT void hb_describe(const hb_table* table, i32* capabilities) {
  table->describe(capabilities);
}

/* ---- how an instruction's work is divided ------------------------------------------------------
 */

typedef struct {
  int64_t units, grain, cost;
} work;

static work work_of(const hb_instruction* instruction) {
  const void* arguments = instruction->slot;
  work result = {0, 1, 0};
  switch (instruction->kernel) {
#define KERNEL(name, units_, grain_, cost_, fields) \
  case HB_##name: {                                 \
    const name##_args* a = arguments;               \
    (void)a;                                        \
    result.units = (units_);                        \
    result.grain = (grain_);                        \
    result.cost = (int64_t)(cost_);                 \
    break;                                          \
  }
#include "kernels.h"
#undef KERNEL
  }
  return result;
}

/* In bytes or operations: less is not worth another thread, and more leaves threads without work
 * at the end. Between them, each thread gets four chunks: claims are few, since each takes as long
 * as a cache line travels from core to core, up to half a microsecond. */
enum { MIN_CHUNK = 1 << 15, MAX_CHUNK = 1 << 21, CHUNKS_PER_THREAD = 4 };

/* Units in a chunk, whole grains. */
static int64_t chunk_size(work w, int64_t threads) {
  int64_t cost = w.cost > 0 ? w.cost : 1;
  int64_t least = MIN_CHUNK / cost + 1, most = MAX_CHUNK / cost + 1;
  int64_t share = w.units / (CHUNKS_PER_THREAD * threads) + 1;
  int64_t units = share < least ? least : share > most ? most : share;
  return (units + w.grain - 1) / w.grain * w.grain;
}

/* ---- the pool ------------------------------------------------------------------------------- */

struct hb_pool {
  /* bit 63: a run is under way; then the instruction (23 bits), its chunks (20), the next chunk
   * (20) */
  _Alignas(64) _Atomic uint64_t claims;
  _Alignas(64) _Atomic int64_t done; /* chunks of the current instruction that are finished */
  _Alignas(64) _Atomic i32 inside;   /* helpers in hb_help */
  _Atomic i32 stopped;
  _Atomic i32 wakes; /* changes when helpers that sleep in hb_serve have to wake */
  _Atomic i32 limit; /* helpers that may be inside; 0: all */
  /* written by the main thread before it publishes chunks, read by threads that claimed one */
  _Alignas(64) const hb_table* table;
  hb_instruction* program;
};

#define RUNNING (UINT64_C(1) << 63)
enum { FIELD = 20 };
#define FIELD_MASK ((UINT64_C(1) << FIELD) - 1)

static inline int64_t next_of(uint64_t claims) { return (int64_t)(claims & FIELD_MASK); }
static inline int64_t chunks_of(uint64_t claims) { return (int64_t)(claims >> FIELD & FIELD_MASK); }
static inline int64_t instruction_of(uint64_t claims) {
  return (int64_t)((claims & ~RUNNING) >> 2 * FIELD);
}

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void run_chunk(const hb_table* table, const hb_instruction* instruction, int64_t chunk) {
  int64_t units = work_of(instruction).units;
  int64_t begin = chunk * instruction->chunk, end = begin + instruction->chunk;
  table->run[instruction->kernel](instruction->slot, begin, end < units ? end : units);
}

/* Claims and runs one chunk; returns 0 if none is left. */
static int take_chunk(hb_pool* pool) {
  /* Read before adding, so that `next` exceeds `chunks` by at most the number of threads. */
  uint64_t claims = atomic_load_explicit(&pool->claims, memory_order_relaxed);
  if (next_of(claims) >= chunks_of(claims)) {
    return 0;
  }
  /* Acquire: everything that the main thread wrote before it published this instruction. The word
   * may have changed since it was read; the value that the addition returns is what was claimed. */
  claims = atomic_fetch_add_explicit(&pool->claims, 1, memory_order_acquire);
  if (next_of(claims) >= chunks_of(claims)) {
    return 0;
  }
  run_chunk(pool->table, &pool->program[instruction_of(claims)], next_of(claims));
  /* Release: the results of the chunk, for the main thread, which waits for the count. */
  atomic_fetch_add_explicit(&pool->done, 1, memory_order_release);
  return 1;
}

HB_EXPORT i32 hb_pool_size(void) { return (i32)sizeof(hb_pool); }

HB_EXPORT i32 hb_pool_announce(hb_pool* pool) {
  /* Sequentially consistent, here and in `leave`: either this load sees that a helper is gone, and
   * the caller wakes it, or that helper sees the run and stays. */
  atomic_store(&pool->claims, RUNNING);
  return atomic_load(&pool->inside);
}

HB_EXPORT void hb_pool_wake(hb_pool* pool) {
  atomic_fetch_add(&pool->wakes, 1);
#ifdef __wasm__
  __builtin_wasm_memory_atomic_notify((int*)&pool->wakes, UINT32_MAX);
#endif
}

HB_EXPORT void hb_pool_limit(hb_pool* pool, i32 helpers) { atomic_store(&pool->limit, helpers); }

HB_EXPORT void hb_pool_stop(hb_pool* pool) {
  atomic_store(&pool->stopped, 1);
  hb_pool_wake(pool);
}

/* Removes a helper from the count, unless a run began in the meantime. */
static int leave(hb_pool* pool) {
  atomic_fetch_sub(&pool->inside, 1);
  if (!(atomic_load(&pool->claims) & RUNNING)) {
    return 1;
  }
  atomic_fetch_add(&pool->inside, 1);
  return 0;
}

/* Removes a helper from the count if there are more than may be: exactly those that are too many.
 */
static int surplus(hb_pool* pool) {
  i32 limit = atomic_load_explicit(&pool->limit, memory_order_relaxed);
  i32 inside = atomic_load_explicit(&pool->inside, memory_order_relaxed);
  while (limit && inside > limit) {
    if (atomic_compare_exchange_weak(&pool->inside, &inside, inside - 1)) {
      return 1;
    }
  }
  return 0;
}

HB_EXPORT i32 hb_help(hb_pool* pool, i32 spins) {
  atomic_fetch_add(&pool->inside, 1);
  for (i32 idle = 0;;) {
    if (surplus(pool)) {
      return 0;
    }
    if (atomic_load_explicit(&pool->stopped, memory_order_relaxed)) {
      atomic_fetch_sub(&pool->inside, 1);
      return 1;
    }
    if (take_chunk(pool)) {
      continue;
    }
    pause_briefly();
    if (atomic_load_explicit(&pool->claims, memory_order_relaxed) & RUNNING) {
      idle = 0;
    } else if (++idle > spins && leave(pool)) {
      return 0;
    }
  }
}

#ifdef __wasm__
HB_EXPORT void hb_serve(hb_pool* pool, i32 spins) {
  for (;;) {
    /* Read before the last look for work: a wake after that changes it, and there is no sleep. */
    i32 wakes = atomic_load(&pool->wakes);
    if (hb_help(pool, spins)) {
      return;
    }
    __builtin_wasm_memory_atomic_wait32((int*)&pool->wakes, wakes, -1);
  }
}
#endif

/* ---- a run ---------------------------------------------------------------------------------- */

/* Rounds of waiting for a helper until the caller hears of it: half a second, more or less */
#ifdef __wasm__ /* which has no instruction for a pause */
enum { PATIENCE = 1 << 28 };
#else
enum { PATIENCE = 1 << 25 };
#endif

/* Waits for chunks that helpers have claimed; returns 0 if patience ends before. */
static int wait_for_helpers(hb_pool* pool, int64_t chunks) {
  for (i32 waited = 0; atomic_load_explicit(&pool->done, memory_order_acquire) != chunks;) {
    pause_briefly();
    if (++waited > PATIENCE) {
      return 0;
    }
  }
  return 1;
}

HB_EXPORT i32 hb_pool_wait(hb_pool* pool) {
  return wait_for_helpers(pool,
                          chunks_of(atomic_load_explicit(&pool->claims, memory_order_relaxed)));
}

static int run_shared(hb_pool* pool, int64_t instruction, int64_t chunks) {
  atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
  /* Release: `done`, the slots of the instruction and all earlier results. */
  atomic_store_explicit(&pool->claims,
                        RUNNING | (uint64_t)instruction << 2 * FIELD | (uint64_t)chunks << FIELD,
                        memory_order_release);
  while (take_chunk(pool)) {
  }
  return wait_for_helpers(pool, chunks);
}

/* Returns 0 if a helper has not finished its part of the instruction. */
static int run_instruction(const hb_table* table, hb_instruction* program, int64_t index,
                           hb_pool* pool) {
  hb_instruction* instruction = &program[index];
  work w = work_of(instruction);
  if (pool) {
    i32 helpers = atomic_load_explicit(&pool->inside, memory_order_relaxed);
    int64_t size = chunk_size(w, 1 + helpers), chunks = (w.units + size - 1) / size;
    if (chunks > 1) {
      instruction->chunk = (i32)size;
      return run_shared(pool, index, chunks);
    }
  }
  table->run[instruction->kernel](instruction->slot, 0, w.units);
  return 1;
}

HB_EXPORT uint64_t hb_ticks(void) {
#if defined(__x86_64__) || defined(__i386__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return 0;
#endif
}

HB_EXPORT i32 hb_run(const hb_table* table, hb_instruction* program, i32 first, i32 last,
                     const hb_patch* patches, i32 n_patches, const i32* registers, hb_pool* pool,
                     i32 profile) {
  for (i32 i = 0; i < n_patches; i++) {
    program[patches[i].instruction].slot[patches[i].slot] = (uint64_t)registers[patches[i].reg];
  }
  if (pool) {
    pool->table = table;
    pool->program = program;
  }
  for (i32 i = first; i < last; i++) {
    uint64_t start = profile ? hb_ticks() : 0;
    if (!run_instruction(table, program, i, pool)) {
      return i;
    }
    if (profile) {
      program[i].ticks += hb_ticks() - start;
    }
  }
  if (pool) {
    atomic_store_explicit(&pool->claims, 0, memory_order_release);
  }
  return last;
}
