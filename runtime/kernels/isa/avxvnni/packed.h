/* AVX2 with the dot product of unsigned and signed bytes, which Intel's cores have since 2021 and
 * AMD's since Zen 5. It is exact: four products of 255 * 127 fit into 32 bits. */
#define HB_DPBUSD _mm256_dpbusd_avx_epi32
#include "isa/avx2/packed.h"
