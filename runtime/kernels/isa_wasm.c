#define HB_TABLE hb_table_wasm
#include "packed_wasm.h"
#include "table.inc"
