/* NEON with the products of bytes that ARMv8.6 adds: those of unsigned and signed ones too. */
#define HB_DOT vdotq_s32
#define HB_DOT_UNSIGNED vusdotq_s32
#define HB_MATRIX vmmlaq_s32
#include "isa/neon/packed.h"
