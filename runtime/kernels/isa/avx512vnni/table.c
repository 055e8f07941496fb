#define HB_TABLE hb_table_avx512vnni
#include "isa/avx512vnni/caps.h"
#include "isa/avx512vnni/packed.h"
#include "table.inc"
