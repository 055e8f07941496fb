/* NEON with the dot product of signed bytes, optional since ARMv8.2 */
#define HB_DOT vdotq_s32
#define HB_DOT_UNSIGNED(sum, quantized, x) vdotq_s32(sum, vreinterpretq_s8_u8(quantized), x)
#include "isa/neon/packed.h"
