#define HB_TABLE hb_table_dotprod
#include "simd_dotprod.h"
#include "table.inc"
