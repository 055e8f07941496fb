#define HB_TABLE hb_table_dotprod
#include "isa/dotprod/caps.h"
#include "isa/dotprod/packed.h"
#include "table.inc"
