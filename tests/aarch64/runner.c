/* Runs programs for tests on another machine: the functions of the kernels, called through pipes.
 *
 * The arena holds all memory of a program. A request brings the used part of it, and the reply to a
 * run returns it; pointers are addresses in the arena, whose own address is sent first. All numbers
 * are 64-bit and little-endian.
 *
 *   request  function, its nine arguments, number of bytes; then these bytes, for the arena
 *   reply    value, number of bytes; then these bytes
 *
 * It ends at the end of its input, or with a message and exit code 1 if input is not a request. */
#include "run.h"
#include "start.h"

enum { KERNEL_LIST, CAPABILITY_LIST, ISA_NAME, OPEN, DESCRIBE, TICKS, RUN };
enum { ARGUMENTS = 9 };

typedef struct {
  uint64_t function, arguments[ARGUMENTS], bytes;
} request;

static _Alignas(64) uint8_t arena[1 << 28]; /* as in emulated.py */

static size_t length(const char* text) {
  size_t n = 0;
  while (text && text[n]) {
    n++;
  }
  return n;
}

static void fail(const char* message) {
  write_all(2, message, length(message));
  leave(1);
}

static void reply(uint64_t value, const void* data, uint64_t bytes) {
  uint64_t header[2] = {value, bytes};
  if (write_all(1, header, sizeof(header)) != sizeof(header) ||
      write_all(1, data, bytes) != bytes) {
    fail("the reply was not taken");
  }
}

static void reply_text(const char* text) { reply(text != NULL, text, length(text)); }

static void run(const uint64_t* a) {
  hb_run((const hb_table*)a[0], (hb_instruction*)a[1], (i32)a[2], (i32)a[3], (const hb_patch*)a[4],
         (i32)a[5], (const i32*)a[6], (hb_pool*)a[7], (i32)a[8]);
}

static void answer(const request* r) {
  switch (r->function) {
    case KERNEL_LIST:
      reply_text(hb_kernel_list());
      break;
    case CAPABILITY_LIST:
      reply_text(hb_capability_list());
      break;
    case ISA_NAME:
      reply_text(hb_isa_name((i32)r->arguments[0]));
      break;
    case OPEN:
      reply((uint64_t)hb_open((const char*)arena), arena, 0);
      break;
    case DESCRIBE:
      hb_describe((const hb_table*)r->arguments[0], (i32*)r->arguments[1]);
      reply(0, arena, r->bytes);
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

void serve(void) {
  request r;
  reply((uint64_t)arena, arena, 0);
  while (read_all(&r, sizeof(r)) == sizeof(r)) {
    if (r.bytes > sizeof(arena)) {
      fail("more bytes than the arena has");
    }
    if (read_all(arena, r.bytes) != r.bytes) {
      fail("the request ends early");
    }
    answer(&r);
  }
}
