#define HB_TABLE hb_table_avx2
#include "isa/avx2/caps.h"
#include "isa/avx2/packed.h"
#include "table.inc"
