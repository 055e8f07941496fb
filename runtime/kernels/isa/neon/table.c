#define HB_TABLE hb_table_neon
#include "isa/neon/packed.h"
#include "table.inc"
