/* The same dot product as AVX-512 encodes it (from Cascade Lake and Zen 4 on), on 256 bits. */
#define HB_DPBUSD _mm256_dpbusd_epi32
#define HB_Q8_0_OFFSET 128
#include "simd_avx2.h"
