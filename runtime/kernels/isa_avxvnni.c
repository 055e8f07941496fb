#define HB_TABLE hb_table_avxvnni
#include "simd_avxvnni.h"
#include "table.inc"
