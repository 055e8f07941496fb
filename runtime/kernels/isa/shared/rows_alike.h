/* For codes_rows.inc where `pi_dot_half` takes all values */
#ifndef HALFBYTE_ISA_SHARED_ROWS_ALIKE_H
#define HALFBYTE_ISA_SHARED_ROWS_ALIKE_H

enum { APART_63 = 0, APART_127 = 0, TWOS_AS_FOURS = 0 };
#define pi_dot_half_3 pi_dot_half
#define pi_dot_half_31 pi_dot_half
#define pi_dot_half_127 pi_dot_half
#define pi_dot_half_255 pi_dot_half

#endif
