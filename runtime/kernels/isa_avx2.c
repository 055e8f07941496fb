#define HB_TABLE hb_table_avx2
#include "packed_avx2.h"
#include "table.inc"
