#define HB_TABLE hb_table_avx512vnni
#include "packed_avx512vnni.h"
#include "table.inc"
