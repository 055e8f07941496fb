#define HB_TABLE hb_table_neon
#include "packed_neon.h"
#include "table.inc"
