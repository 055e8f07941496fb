#define HB_TABLE hb_table_i8mm
#include "simd_i8mm.h"
#include "table.inc"
