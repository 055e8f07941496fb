#define HB_TABLE hb_table_scalar
#include "packed_scalar.h"
#include "table.inc"
