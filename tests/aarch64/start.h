/* The system as the runner needs it, without a C library: see start.c. */
#ifndef HALFBYTE_TESTS_START_H
#define HALFBYTE_TESTS_START_H

#include <stddef.h>

/* The program: called once, and it ends with it. */
void serve(void);

/* How many bytes of input came before its end. */
size_t read_all(void* data, size_t bytes);
/* How many bytes were taken by file 1, the output, or 2, for messages. */
size_t write_all(int file, const void* data, size_t bytes);
_Noreturn void leave(int code);

#endif
