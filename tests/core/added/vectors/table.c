#define HB_TABLE hb_table_vectors
#include "isa/vectors/caps.h"
#include "isa/vectors/packed.h"
#include "table.inc"
