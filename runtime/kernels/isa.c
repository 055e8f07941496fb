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

static int has_avx2(void) {
  unsigned eax, ebx, ecx, edx;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}
#endif

#ifdef HB_VNNI
extern const hb_table hb_table_avxvnni, hb_table_avx512vnni;

static int has_avxvnni(void) {
  unsigned eax, ebx, ecx, edx;
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 4 & 1);
}
static int has_avx512vnni(void) {
  return has_avx2() && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}
#endif

#ifdef HB_NEON
extern const hb_table hb_table_neon;
#endif

#ifdef HB_I8MM
extern const hb_table hb_table_dotprod, hb_table_i8mm;

#if defined(__linux__)
#include <sys/auxv.h>

static int has_dotprod(void) { return getauxval(AT_HWCAP) >> 20 & 1; } /* HWCAP_ASIMDDP */
static int has_i8mm(void) { return has_dotprod() && (getauxval(AT_HWCAP2) >> 13 & 1); }
#elif defined(__APPLE__)
#include <sys/sysctl.h>

static int has(const char* feature) {
  int value = 0;
  size_t size = sizeof(value);
  return !sysctlbyname(feature, &value, &size, NULL, 0) && value;
}
static int has_dotprod(void) { return has("hw.optional.arm.FEAT_DotProd"); }
static int has_i8mm(void) { return has_dotprod() && has("hw.optional.arm.FEAT_I8MM"); }
#else
static int has_dotprod(void) { return 0; }
static int has_i8mm(void) { return 0; }
#endif
#endif

/* A WebAssembly file has one table: one that the engine cannot run is not valid as a whole. */
#ifdef HB_WASM
extern const hb_table HB_WASM;
#else
extern const hb_table hb_table_scalar;
#endif

static const isa isas[] = {
#ifdef HB_VNNI
    {"avx512vnni", &hb_table_avx512vnni, has_avx512vnni},
    {"avxvnni", &hb_table_avxvnni, has_avxvnni},
#endif
#ifdef HB_AVX2
    {"avx2", &hb_table_avx2, has_avx2},
#endif
#ifdef HB_I8MM
    {"i8mm", &hb_table_i8mm, has_i8mm},
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
