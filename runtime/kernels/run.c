/* Runs an array of instructions, on one thread or with helpers.
 *
 * The work of an instruction, or of several that are independent of each other, is divided into
 * chunks, which threads claim from one atomic word. The word holds the first instruction, the
 * number of chunks and the next chunk, so that a claim is one atomic exchange. The main thread
 * claims chunks too, and waits only for chunks that were claimed: a helper that is late, slow to
 * wake or absent blocks nobody. Results do not depend on which thread runs a chunk.
 *
 * What takes time is moving cache lines between cores, a third of a microsecond there and back. So
 * claims are few, the main thread's first one is published with the instruction, it counts its own
 * chunks by itself, and memory that helpers read is only written where it changes. */
#include "run.h"

#include <stdatomic.h>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

/* ---- the lists ------------------------------------------------------------------------------ */

#define OUT(type, name) " out:" #type ":" #name
#define IN(type, name) " in:" #type ":" #name
#define INT(name) " " #name
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

SMALL static work work_of(const hb_instruction* instruction) {
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

/* Stages follow one another, each with as many units: one needs all results of those before it. */
SHARED int64_t stages_of(const hb_instruction* instruction) {
#ifndef HB_TEXT_ONLY
  if (instruction->kernel == HB_recurrent_layer) {
    return LAYER_STAGES((const recurrent_layer_args*)(const void*)instruction->slot);
  }
#endif
  (void)instruction;
  return 1;
}

SHARED int64_t units_of(const hb_instruction* instruction) {
  return work_of(instruction).units / stages_of(instruction);
}

/* In bytes or operations: less is not worth another thread, and more leaves threads without work
 * at the end. Between them, there are four chunks per thread. */
enum { MIN_CHUNK = 1 << 15, MAX_CHUNK = 1 << 21, CHUNKS_PER_THREAD = 4 };

/* Units in a chunk, whole grains; `total` is the cost of all instructions that run together. In
 * stages, threads keep their units, whose weights are in their caches then. */
static int64_t chunk_size(work w, int64_t total, int64_t threads, int64_t stages) {
  int64_t cost = w.cost > 0 ? w.cost : 1;
  int64_t least = MIN_CHUNK / cost + 1, most = MAX_CHUNK / cost + 1;
  if (stages > 1) {
    int64_t parts = w.units / least < threads ? w.units / least : threads;
    return parts > 1 ? (w.units + parts - 1) / parts : w.units;
  }
  int64_t share = total / cost / (CHUNKS_PER_THREAD * threads) + 1;
  int64_t units = share < least ? least : share > most ? most : share;
  return (units + w.grain - 1) / w.grain * w.grain;
}

/* ---- the pool ------------------------------------------------------------------------------- */

struct hb_pool {
  /* bit 63: a run is under way; then the first instruction (23 bits), the chunks of those that run
   * together (20), the next chunk (20) */
  _Alignas(64) _Atomic uint64_t claims;
  _Alignas(64) _Atomic int64_t done; /* chunks that helpers have finished, of all runs */
  _Alignas(64) _Atomic i32 inside;   /* helpers in hb_help */
  _Atomic i32 stopped;
  _Atomic i32 wakes; /* changes when helpers that sleep in hb_serve have to wake */
  _Atomic i32 limit; /* helpers that may be inside; 0: all */
  /* written by the main thread before it publishes chunks, read by threads that claimed one */
  _Alignas(64) const hb_table* table;
  hb_instruction* program;
  int64_t stage;
  _Atomic i32 threads; /* that share the work, as far as was known */
  /* of the main thread: `done` when helpers have finished all that they have claimed */
  _Alignas(64) int64_t expected;
  int64_t resume; /* the stage with which the next run begins */
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

/* How many of the chunks that are left a thread claims: at first several, since some kernels
 * prepare their inputs for every claim, then one by one, so that all threads end at the same time.
 * Of two threads each begins with half of its share, of more, some of which may be slow, with a
 * quarter. */
static int64_t claim_of(int64_t left, int64_t threads) {
  int64_t claims = threads > 2 ? 4 * threads : 4;
  return (left + claims - 1) / claims;
}

static void run_units(const hb_table* table, const hb_instruction* instruction, int64_t begin,
                      int64_t end) {
  table->run(instruction->kernel, instruction->slot, begin, end);
}

/* Runs stages [stage, end) */
SHARED void run_whole(const hb_table* table, const hb_instruction* instruction, int64_t stage,
                      int64_t end) {
  int64_t units = units_of(instruction);
  run_units(table, instruction, stage * units, end * units);
}

/* Runs chunks [begin, end) of the instructions that run together from this one on. */
SHARED void run_chunks(const hb_pool* pool, const hb_instruction* instruction, int64_t begin,
                       int64_t end) {
  for (; begin < end; instruction++) {
    int64_t units = units_of(instruction), size = instruction->chunk;
    int64_t chunks = (units + size - 1) / size, first = pool->stage * units;
    if (begin < chunks) {
      int64_t last = end * size;
      run_units(pool->table, instruction, first + begin * size,
                first + (last < units ? last : units));
    }
    begin = begin < chunks ? 0 : begin - chunks;
    end -= chunks;
  }
}

/* Claims and runs some chunks; returns how many, 0 if none are left. */
SHARED int64_t take_chunks(hb_pool* pool) {
  uint64_t claims = atomic_load_explicit(&pool->claims, memory_order_relaxed);
  int64_t count;
  do {
    int64_t left = chunks_of(claims) - next_of(claims);
    if (left <= 0) {
      return 0;
    }
    count = claim_of(left, atomic_load_explicit(&pool->threads, memory_order_relaxed));
    /* Acquire: everything that the main thread wrote before it published this instruction. */
  } while (!atomic_compare_exchange_weak_explicit(&pool->claims, &claims, claims + (uint64_t)count,
                                                  memory_order_acquire, memory_order_relaxed));
  int64_t next = next_of(claims);
  run_chunks(pool, &pool->program[instruction_of(claims)], next, next + count);
  return count;
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
    int64_t chunks = take_chunks(pool);
    if (chunks) {
      /* Release: their results, for the main thread, which waits for the count. */
      atomic_fetch_add_explicit(&pool->done, chunks, memory_order_release);
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
HB_EXPORT i32 hb_pool_wait(hb_pool* pool) {
  for (i32 waited = 0; atomic_load_explicit(&pool->done, memory_order_acquire) != pool->expected;) {
    pause_briefly();
    if (++waited > PATIENCE) {
      return 0;
    }
  }
  return 1;
}

static i32 run_shared(hb_pool* pool, int64_t instruction, int64_t chunks, int64_t threads) {
  int64_t own = claim_of(chunks, threads), more;
  /* Release: the slots of the instructions and all earlier results. */
  atomic_store_explicit(
      &pool->claims,
      RUNNING | (uint64_t)instruction << 2 * FIELD | (uint64_t)chunks << FIELD | (uint64_t)own,
      memory_order_release);
  run_chunks(pool, &pool->program[instruction], 0, own);
  while ((more = take_chunks(pool))) {
    own += more;
  }
  pool->expected += chunks - own;
  return hb_pool_wait(pool);
}

/* The instructions from `first` on that run together, at most `most`, divided into chunks for this
 * many threads; returns the number of chunks. */
static int64_t divide(hb_instruction* first, int64_t most, int64_t threads) {
  int64_t total = 0, chunks = 0, stages = stages_of(first);
  for (int64_t i = 0; i < most; i++) {
    work w = work_of(&first[i]);
    total += w.units * w.cost;
  }
  for (int64_t i = 0; i < most; i++) {
    work w = work_of(&first[i]);
    w.units /= stages;
    int64_t size = chunk_size(w, total, threads, stages);
    chunks += (w.units + size - 1) / size;
    if (first[i].chunk != size) {
      first[i].chunk = (i32)size;
    }
  }
  return chunks;
}

/* Runs the instructions from `index` on that run together, or a stage of one that runs alone;
 * returns 0 if a helper has not finished its part. */
static i32 run_together(hb_instruction* program, int64_t index, int64_t count, int64_t stage,
                        hb_pool* pool) {
  i32 threads = 1 + atomic_load_explicit(&pool->inside, memory_order_relaxed);
  int64_t chunks = threads > 1 ? divide(&program[index], count, threads) : 1;
  if (chunks > count) {
    if (atomic_load_explicit(&pool->threads, memory_order_relaxed) != threads) {
      atomic_store_explicit(&pool->threads, threads, memory_order_relaxed);
    }
    if (pool->stage != stage) {
      pool->stage = stage;
    }
    return run_shared(pool, index, chunks, threads);
  }
  for (int64_t i = index; i < index + count; i++) {
    run_whole(pool->table, &program[i], stage, stage + 1);
  }
  return 1;
}

/* Of at most `most` instructions, how many run together */
static i32 together_of(const hb_instruction* first, i32 most) {
  i32 count = 1;
  while (count < most && count <= first->together && stages_of(first + count) == 1) {
    count++;
  }
  return stages_of(first) == 1 ? count : 1;
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
    uint64_t* slot = &program[patches[i].instruction].slot[patches[i].slot];
    uint64_t value = (uint64_t)registers[patches[i].reg];
    if (*slot != value) {
      *slot = value;
    }
  }
  if (pool && (pool->table != table || pool->program != program)) {
    pool->table = table;
    pool->program = program;
  }
  int64_t stage = pool ? pool->resume : 0;
  for (i32 i = first, count; i < last; i += count, stage = 0) {
    uint64_t start = profile ? hb_ticks() : 0;
    int64_t stages = stages_of(&program[i]);
    count = pool && !profile ? together_of(&program[i], last - i) : 1;
    if (!pool) {
      run_whole(table, &program[i], 0, stages);
    }
    for (; pool && stage < stages; stage++) {
      if (!run_together(program, i, count, stage, pool)) {
        pool->resume = (stage + 1) % stages;
        return pool->resume ? i - 1 : i + count - 1;
      }
    }
    if (profile) {
      program[i].ticks += hb_ticks() - start;
    }
  }
  if (pool) {
    atomic_store_explicit(&pool->claims, 0, memory_order_release);
    /* They differ only where the caller has given up on a helper, which has ended. */
    pool->expected = atomic_load_explicit(&pool->done, memory_order_relaxed);
    pool->resume = 0;
  }
  return last;
}
