/* AVX2 with the dot product of unsigned and signed bytes that 2021's small and large cores of Intel
 * and Zen 5 have. It is exact: four products of 255 * 127 fit in 32 bits. */
#define HB_DPBUSD _mm256_dpbusd_avx_epi32
#include "isa/avx2/packed.h"
