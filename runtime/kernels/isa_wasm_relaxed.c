#define HB_TABLE hb_table_wasm_relaxed
#include "simd_wasm_relaxed.h"
#include "table.inc"
