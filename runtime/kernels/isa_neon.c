#define HB_TABLE hb_table_neon
#include "simd_neon.h"
#include "table.inc"
