#define HB_TABLE hb_table_neon
#include "isa/neon/caps.h"
#include "isa/neon/packed.h"
#include "table.inc"
