/* NEON with the byte products that ARMv8.6 adds. The constants are described in isa/caps.h. */
#ifndef HALFBYTE_ISA_I8MM_CAPS_H
#define HALFBYTE_ISA_I8MM_CAPS_H

#include "isa/shared/neon_caps.h"

enum { BYTE_PRODUCTS = 1 };

#endif
