#define HB_TABLE hb_table_avxvnni
#include "isa/avxvnni/caps.h"
#include "isa/avxvnni/packed.h"
#include "table.inc"
