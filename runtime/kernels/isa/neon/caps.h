/* NEON, as on every AArch64 machine. The constants are described in isa/caps.h. */
#ifndef HALFBYTE_ISA_NEON_CAPS_H
#define HALFBYTE_ISA_NEON_CAPS_H

#include "isa/shared/neon_caps.h"

enum { BYTE_PRODUCTS = 0 };

#endif
