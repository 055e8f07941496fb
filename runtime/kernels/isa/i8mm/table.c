#define HB_TABLE hb_table_i8mm
#include "isa/i8mm/caps.h"
#include "isa/i8mm/packed.h"
#include "table.inc"
