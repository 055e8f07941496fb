#define HB_TABLE hb_table_scalar
#include "simd_scalar.h"
#include "table.inc"
