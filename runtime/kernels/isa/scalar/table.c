#define HB_TABLE hb_table_scalar
#include "isa/scalar/caps.h"
#include "isa/scalar/packed.h"
#include "table.inc"
