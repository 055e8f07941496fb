/* NEON with the byte products that ARMv8.6 adds, also of unsigned and signed bytes */
#define HB_DOT vdotq_s32
#define HB_DOT_UNSIGNED vusdotq_s32
#define HB_MATRIX vmmlaq_s32
#include "isa/neon/packed.h"
