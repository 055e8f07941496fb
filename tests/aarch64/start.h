/* The system calls of the runner, without a C library: see start.c */
#ifndef HALFBYTE_TESTS_START_H
#define HALFBYTE_TESTS_START_H

#include <stddef.h>

/* The program: called once; the process ends when it returns. */
void serve(void);

/* Returns how many bytes of input were read before its end. */
size_t read_all(void* data, size_t bytes);
/* Returns how many bytes were written to file 1, the output, or 2, for messages. */
size_t write_all(int file, const void* data, size_t bytes);
_Noreturn void leave(int code);

#endif
