/* Runs programs for the tests of another machine: the kernels' functions, called through pipes.
 *
 * The arena holds all memory of a program. A request brings as much of it as is in use, a reply to
 * a run takes it back; pointers in it are those of the arena's address, which is told first. All
 * numbers are 64-bit and little-endian.
 *
 *   request  function, its nine arguments, bytes; then these bytes, which go into the arena
 *   reply    value, bytes; then these bytes
 *
 * It ends with its input, and with a message and exit code 1 on input that is not a request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

enum { KERNEL_LIST, ISA_NAME, OPEN, TICKS, RUN };
enum { ARGUMENTS = 9 };

typedef struct {
  uint64_t function, arguments[ARGUMENTS], bytes;
} request;

static _Alignas(64) uint8_t arena[1 << 28]; /* as emulated.py has it */

static void fail(const char* message) {
  fprintf(stderr, "runner: %s\n", message);
  exit(1);
}

static void reply(uint64_t value, const void* data, uint64_t bytes) {
  uint64_t header[2] = {value, bytes};
  if (fwrite(header, sizeof(header), 1, stdout) != 1 || fwrite(data, 1, bytes, stdout) != bytes ||
      fflush(stdout)) {
    fail("the reply was not taken");
  }
}

static void reply_text(const char* text) { reply(text != NULL, text, text ? strlen(text) : 0); }

static void run(const uint64_t* a) {
  hb_run((const hb_table*)a[0], (hb_instruction*)a[1], (i32)a[2], (i32)a[3], (const hb_patch*)a[4],
         (i32)a[5], (const i32*)a[6], (hb_pool*)a[7], (i32)a[8]);
}

static void answer(const request* r) {
  switch (r->function) {
    case KERNEL_LIST:
      reply_text(hb_kernel_list());
      break;
    case ISA_NAME:
      reply_text(hb_isa_name((i32)r->arguments[0]));
      break;
    case OPEN:
      reply((uint64_t)hb_open((const char*)arena), arena, 0);
      break;
    case TICKS:
      reply(hb_ticks(), arena, 0);
      break;
    case RUN:
      run(r->arguments);
      reply(0, arena, r->bytes);
      break;
    default:
      fail("no such function");
  }
}

int main(void) {
  request r;
  reply((uint64_t)arena, arena, 0);
  while (fread(&r, sizeof(r), 1, stdin) == 1) {
    if (r.bytes > sizeof(arena)) {
      fail("more bytes than the arena has");
    }
    if (fread(arena, 1, r.bytes, stdin) != r.bytes) {
      fail("the request ends early");
    }
    answer(&r);
  }
  return 0;
}
