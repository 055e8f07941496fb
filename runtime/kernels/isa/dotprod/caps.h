/* NEON with the dot product of signed bytes, optional since ARMv8.2. The constants are described in
 * isa/caps.h. */
#ifndef HALFBYTE_ISA_DOTPROD_CAPS_H
#define HALFBYTE_ISA_DOTPROD_CAPS_H

#include "isa/shared/neon_caps.h"

enum { BYTE_PRODUCTS = 1 };

#endif
