#define HB_TABLE hb_table_wasm
#include "simd_wasm.h"
#include "table.inc"
