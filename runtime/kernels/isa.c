/* The tables in this library, best first, and whether this machine can run them. */
#include "run.h"

typedef struct {
  const char* name;
  const hb_table* table;
  int (*runs)(void);
} isa;

static int always(void) { return 1; }

#ifdef HB_AVX2
#include <cpuid.h>

extern const hb_table hb_table_avx2;

/* Not __builtin_cpu_supports: some compilers lack the runtime functions that it needs. */
static unsigned cpuid(unsigned leaf, unsigned subleaf, char reg) {
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx)) {
    return 0;
  }
  return reg == 'a' ? eax : reg == 'b' ? ebx : ecx;
}

static int all(unsigned flags, unsigned needed) { return (flags & needed) == needed; }

/* Whether the operating system saves these registers (bits of XCR0) when it switches threads. */
static int saves(unsigned registers) {
  unsigned low, high;
  if (!all(cpuid(1, 0, 'c'), bit_OSXSAVE)) {
    return 0;
  }
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return all(low, registers);
}

static int has_avx2(void) {
  return saves(0x6) && all(cpuid(1, 0, 'c'), bit_AVX | bit_FMA | bit_F16C) &&
         all(cpuid(7, 0, 'b'), bit_AVX2);
}
#endif

#ifdef HB_AVXVNNI
extern const hb_table hb_table_avxvnni;

static int has_avxvnni(void) { return has_avx2() && (cpuid(7, 1, 'a') >> 4 & 1); }
#endif

#ifdef HB_AVX512VNNI
extern const hb_table hb_table_avx512vnni;

#ifdef __APPLE__
enum { AVX512_REGISTERS = 0x6 }; /* macOS enables the others when they are first used */
#else
enum { AVX512_REGISTERS = 0xe6 };
#endif

static int has_avx512vnni(void) {
  return has_avx2() && saves(AVX512_REGISTERS) &&
         all(cpuid(7, 0, 'b'), bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL) &&
         all(cpuid(7, 0, 'c'), bit_AVX512VNNI);
}
#endif

#ifdef HB_NEON
extern const hb_table hb_table_neon;
#endif

#if defined(HB_DOTPROD) || defined(HB_I8MM)
#if defined(__linux__)
#include <sys/auxv.h>

static int has_dotprod(void) { return getauxval(AT_HWCAP) >> 20 & 1; } /* HWCAP_ASIMDDP */
#define HAS_I8MM (getauxval(AT_HWCAP2) >> 13 & 1)
#elif defined(__APPLE__)
#include <sys/sysctl.h>

static int has(const char* feature) {
  int value = 0;
  size_t size = sizeof(value);
  return !sysctlbyname(feature, &value, &size, NULL, 0) && value;
}
static int has_dotprod(void) { return has("hw.optional.arm.FEAT_DotProd"); }
#define HAS_I8MM has("hw.optional.arm.FEAT_I8MM")
#else
static int has_dotprod(void) { return 0; }
#define HAS_I8MM 0
#endif
#endif

#ifdef HB_DOTPROD
extern const hb_table hb_table_dotprod;
#endif

#ifdef HB_I8MM
extern const hb_table hb_table_i8mm;

static int has_i8mm(void) { return has_dotprod() && HAS_I8MM; }
#endif

/* A WebAssembly file has one table: an engine rejects a whole file if it lacks one instruction. */
#ifdef HB_WASM
extern const hb_table HB_WASM;
#else
extern const hb_table hb_table_scalar;
#endif

static const isa isas[] = {
#ifdef HB_AVX512VNNI
    {"avx512vnni", &hb_table_avx512vnni, has_avx512vnni},
#endif
#ifdef HB_AVXVNNI
    {"avxvnni", &hb_table_avxvnni, has_avxvnni},
#endif
#ifdef HB_AVX2
    {"avx2", &hb_table_avx2, has_avx2},
#endif
#ifdef HB_I8MM
    {"i8mm", &hb_table_i8mm, has_i8mm},
#endif
#ifdef HB_DOTPROD
    {"dotprod", &hb_table_dotprod, has_dotprod},
#endif
#ifdef HB_NEON
    {"neon", &hb_table_neon, always},
#endif
#ifdef HB_WASM
    {HB_WASM_NAME, &HB_WASM, always},
#else
    {"scalar", &hb_table_scalar, always},
#endif
};
enum { ISAS = sizeof(isas) / sizeof(isas[0]) };

static int same(const char* a, const char* b) {
  while (*a && *a == *b) {
    a++;
    b++;
  }
  return *a == *b;
}

HB_EXPORT const char* hb_isa_name(i32 index) {
  return index >= 0 && index < ISAS ? isas[index].name : NULL;
}

HB_EXPORT const hb_table* hb_open(const char* name) {
  for (int i = 0; i < ISAS; i++) {
    if (same(name, isas[i].name)) {
      return isas[i].runs() ? isas[i].table : NULL;
    }
  }
  return NULL;
}
