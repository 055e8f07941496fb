#define HB_TABLE hb_table_wasm_relaxed
#include "isa/wasm_relaxed/caps.h"
#include "isa/wasm_relaxed/packed.h"
#include "table.inc"
