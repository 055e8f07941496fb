#define HB_TABLE hb_table_wasm
#include "isa/wasm/caps.h"
#include "isa/wasm/packed.h"
#include "table.inc"
