// clang-format off: this file is aligned by hand
/* The list of kernels: start here.
 *
 * A kernel performs one operation on arrays. It is written once, in C, and compiled for every
 * instruction set. Everything that other code needs to know about it is an entry in this file:
 *
 *   KERNEL(name, units, grain, cost, fields)
 *
 *   name    the operator's name in Python (halfbyte/core/ops/), with suffixes for a variant and a
 *           type: gelu_tanh, matmul_q4_0
 *   units   the number of units that the work divides into, as an expression of the arguments `a`;
 *           a call of the body runs the units [begin, end)
 *   grain   threads share the work in chunks that begin at multiples of this number of units
 *   cost    bytes moved or operations done per unit, whichever is more: decides whether more
 *           threads are worth it
 *   fields  the arguments, in the order outputs, weights, scales, inputs, sizes, scalars:
 *             OUT(type, y), IN(type, x)  an array that is written, or read
 *             INT(n), FLOAT(epsilon)     a number
 *           Their names are those of the operator's operands, dimensions and attributes, which are
 *           bound by name.
 *
 * The comment above an entry says what the kernel computes. In these comments `n` counts rows of
 * activations, `k` their columns, and `m` the rows of a weight matrix [m, k]. Each heading names a
 * file: it contains the bodies of the kernels below it, each after BODY(name). A *_body.inc is
 * included once per type; there, OF(name) is the name with the type appended.
 * tests/core/test_kernel_list.py checks the headings.
 *
 * HB_TEXT_ONLY leaves out kernels that only graphs of ONNX use. Files for WebAssembly leave out
 * encode/plain.inc, encode/parts.inc and encode/convert.inc: there NumPy does the same.
 *
 * Bodies are written with primitives. isa/<name>/ defines those of an instruction set: simd.h has
 * vectors of sixteen lanes and packed.h packed rows (both described in isa/scalar/), caps.h the
 * sizes of tiles (described in isa/caps.h). isa/<name>/table.c compiles all bodies with them.
 *
 * This file is included wherever code is generated from the list, each time with different
 * definitions of KERNEL, OUT, IN, INT and FLOAT:
 *
 *   kernel.h   a struct <name>_args with the fields, eight bytes each, and a number HB_<name>
 *   table.inc  the dispatch table of an instruction set: its functions by number
 *   run.c      units, grain and cost of an instruction, and the text of hb_kernel_list()
 *
 * Python reads that text when it opens the library (halfbyte/core/backends/library.py), and binds
 * operands, dimensions and attributes to slots by it (native.py beside it). The tests read it too:
 * every kernel has cases in tests/core/ops, which run on every table and are compared with the
 * operator's NumPy definition. So a new kernel needs an entry here, a body, an operator and cases;
 * a test names whatever is missing. */

/* ================================================================================================
 * linear/: matrix products with weights, embedding lookups, and quantization of activations
 * ============================================================================================= */

/* ---- linear/float_body.inc ---- */

/* y[n, d] = w[ids[n], :], dequantized; ids outside of [0, v) give a row of zeros */
#define GATHER(suffix, type, cost)              \
  KERNEL(gather_##suffix, a->n, 1, a->d * cost, \
         OUT(f32, y) IN(type, w) IN(i32, ids) INT(n) INT(v) INT(d))
GATHER(f32, f32, 4)
GATHER(f16, f16, 4)
GATHER(bf16, bf16, 4)
GATHER(q8_0, q8_0, 4)
GATHER(q4_0, q4_0, 4)

/* y[n, m] = r[n, m] + sum_k x[n, k] w[m, k] with float activations; may use FMA; sums are kept in
 * 16 lanes. Here and below, r is NULL if nothing is added. */
#define MATMUL(type, grain, bytes)                        \
  KERNEL(matmul_##type, a->m, grain, a->n * a->k * bytes, \
         OUT(f32, y) IN(type, w) IN(f32, x) IN(f32, r) INT(n) INT(k) INT(m))
MATMUL(f32, 4, 4)
MATMUL(f16, 4, 2)
MATMUL(bf16, 4, 2)
MATMUL(q8_0, 4, 2)
MATMUL(q4_0, 4, 2)

/* ---- linear/quantize.inc ---- */

/* xq[n, k], xd[n, k/32], xs[n, k/16] = x quantized in blocks of 32: d = max|x| / 127, q =
 * round-half-even(x * (127 / max|x|)) in [-127, 127], s = sum of q over each half of a block. A
 * block is all zeros if max|x| is 0, or so small that 127 / max|x| is not finite. */
#define QUANTIZED OUT(i8, xq) OUT(f32, xd) OUT(i16, xs)
KERNEL(dynamic_quantize, a->n * (a->k / 32), 4, 32 * 4, QUANTIZED IN(f32, x) INT(n) INT(k))

/* dynamic_quantize(rms_norm(x)) */
KERNEL(rms_norm_quantize, a->n, 1, a->d * 8,
       QUANTIZED IN(f32, weight) IN(f32, x) INT(n) INT(d) FLOAT(epsilon))

/* y = each 32 numbers of x times the Hadamard matrix of order 32, divided by 8; and the same
 * quantized to int8 with one scale per 128 numbers */
KERNEL(hadamard, a->n * (a->k / 32), 4, 32 * 8, OUT(f32, y) IN(f32, x) INT(n) INT(k))
KERNEL(hadamard_quantize, a->n * (a->k / 128), 4, 128 * 8, QUANTIZED IN(f32, x) INT(n) INT(k))

/* y = layer_norm(x) gain, or layer_norm(x) if gain is NULL; and dynamic_quantize or
 * hadamard_quantize of layer_norm(x) */
#define LAYER_NORM(name)                                                                     \
  KERNEL(name, a->n, 1, a->d * 8,                                                            \
         OUT(f32, y) QUANTIZED IN(f32, weight) IN(f32, bias) IN(f32, gain) IN(f32, x) INT(n) \
         INT(d) FLOAT(epsilon))
LAYER_NORM(layer_norm_quantize)
LAYER_NORM(layer_norm_hadamard_quantize)
#undef LAYER_NORM

/* dynamic_quantize(gelu(x)), hadamard_quantize(gelu(x)) */
KERNEL(gelu_quantize_erf,  a->n * (a->d / 32), 4, 32 * 16, QUANTIZED IN(f32, x) INT(n) INT(d))
KERNEL(gelu_quantize_tanh, a->n * (a->d / 32), 4, 32 * 16, QUANTIZED IN(f32, x) INT(n) INT(d))
KERNEL(gelu_hadamard_quantize_erf, a->n * (a->d / 128), 4, 128 * 16,
       QUANTIZED IN(f32, x) INT(n) INT(d))
KERNEL(gelu_hadamard_quantize_tanh, a->n * (a->d / 128), 4, 128 * 16,
       QUANTIZED IN(f32, x) INT(n) INT(d))

/* dynamic_quantize(silu(gate) * up) */
KERNEL(swiglu_quantize, a->n * (a->d / 32), 4, 32 * 16,
       QUANTIZED IN(f32, gate) IN(f32, up) INT(n) INT(d))
#undef QUANTIZED

/* ---- linear/int8_body.inc ---- */

/* y[n, m] = r[n, m] + (bias[m] + s), s = sum over the blocks b, in order, of (w.d[m, b] * xd[n, b])
 * * float(sum_32 w.q * xq). Integer sums are exact, and the products are rounded before they are
 * added: bit-identical on every table. The offset of 8 in Q4_0 is subtracted by means of xs. `bias`
 * may be NULL, like r. */
#define INT8(type)                                                                           \
  OUT(f32, y) IN(type, w) IN(f32, xd) IN(i8, xq) IN(i16, xs) IN(f32, r) IN(f32, bias) INT(n) \
  INT(k) INT(m)
KERNEL(matmul_int8_q8_0, a->m, 16, a->n * a->k, INT8(q8_0))
KERNEL(matmul_int8_q4_0, a->m, 16, a->n * a->k, INT8(q4_0))

/* ---- linear/packed_rows_body.inc ---- */

/* gather from packed rows */
GATHER(q8_0_r16, q8_0_r16, 8)
GATHER(q4_0_r16, q4_0_r16, 8)

/* y[m, k] = w in the packed layout. y may be w if `scratch` has room for sixteen rows; only one
 * thread at a time may use it then. */
#define PACK(type)                    \
  KERNEL(pack_##type, a->m, 16, a->k, \
         OUT(type##_r16, y) OUT(type, scratch) IN(type, w) INT(k) INT(m))
PACK(q8_0)
PACK(q4_0)

/* ---- linear/packed_body.inc ---- */

/* matmul_int8 with packed rows. A unit is UNIT_ROWS of them with UNIT_COLUMNS rows of x. */
#define PACKED(name, type) KERNEL(name, PACKED_UNITS(a), 1, UNIT_ROWS * a->n * a->k, INT8(type))
PACKED(matmul_int8_q8_0_r16, q8_0_r16)
PACKED(matmul_int8_q4_0_r16, q4_0_r16)

/* The same for activations from hadamard_quantize: s = sum over the blocks of 128 columns, in
 * order, of xd times the sum over its four blocks of 32, in order, of w.d * float(sum w.q * xq). m
 * is a multiple of 16. */
PACKED(matmul_rotated_q8_0_r16, q8_0_r16)
PACKED(matmul_rotated_q4_0_r16, q4_0_r16)

/* ---- linear/packed.inc ---- */

/* The same with weights requantized to share one scale per 128 columns, d = max(max|w.d|, 1e-30): a
 * quantized weight becomes v = (w.q * 256 * c + 2^14) >> 15 with c = round-half-even(w.d / d *
 * 2^14), and s = sum of (d / 128 * xd) * float(sum_128 v * xq). Scales are finite. */
PACKED(matmul_widened_q8_0_r16, q8_0_r16)
#undef PACKED

/* ---- linear/blocks_body.inc ---- */

/* All of the above for the formats whose blocks have minima or nested scales (Q4_1, Q5_0, Q5_1 and
 * the K-quants), or whose integers are looked up in a table. Products with int8 activations add, in
 * the order of a row's blocks of 32 or 16 columns, (d * xd) * float(sum q * xq) and, for formats
 * with minima, m * (xd * float(xs)). */
#define BLOCKS(type)                                                        \
  GATHER(type, type, 8)                                                     \
  GATHER(type##_r16, type##_r16, 8)                                         \
  MATMUL(type, 16, 4)                                                       \
  KERNEL(matmul_int8_##type, a->m, 16, a->n * a->k, INT8(type))             \
  KERNEL(matmul_int8_##type##_r16, a->m, 16, a->n * a->k, INT8(type##_r16)) \
  PACK(type)
BLOCKS(q4_1)
BLOCKS(q5_0)
BLOCKS(q5_1)
BLOCKS(q2_k)
BLOCKS(q3_k)
BLOCKS(q4_k)
BLOCKS(q5_k)
BLOCKS(q6_k)
BLOCKS(iq4_nl)
BLOCKS(mxfp4)
BLOCKS(iq4_xs)
BLOCKS(codes)
BLOCKS(codes_3)
BLOCKS(fp4)
#undef BLOCKS
#undef PACK
#undef INT8
#undef MATMUL
#undef GATHER

/* ---- linear/experts.inc ---- */

/* For each row of p[n, e], the u experts with the largest scores, the largest first; of equal ones
 * the one that comes first, NaN as -infinity. Scores are p if they are NULL. Of the `groups` equal
 * parts of the experts, those count whose `best` (1 or 2) largest scores have the `kept` largest
 * sums. weights[n, u] = p of these, over their sum + 1e-20 if `normalize` is 1, times scale. The
 * n u pairs of a row and an expert are sorted by expert, then by row: places[n, u] are their places,
 * rows[n u] and experts[n u] the row and the expert of each place, and ends[e] is the first place
 * after those of an expert. */
KERNEL(route_experts, 1, 1, a->n * a->u * a->e,
       OUT(f32, weights) OUT(i32, places) OUT(i32, rows) OUT(i32, experts) OUT(i32, ends) IN(f32, p)
       IN(f32, scores) INT(n) INT(e) INT(u) INT(groups) INT(kept) INT(best) INT(normalize)
       FLOAT(scale))

/* y[n u, d] = x[rows, :] of x[t, d]; rows outside of [0, t) give zeros */
KERNEL(expert_rows, a->n * a->u, 1, a->d * 4,
       OUT(f32, y) IN(f32, x) IN(i32, rows) INT(n) INT(t) INT(u) INT(d))

/* Products of n u rows with matrices w[e, m, k], each of `size` bytes: rows from ends[i - 1] on,
 * before ends[i], with that of expert i, by the kernel of this number, that of matmul or of
 * matmul_int8 for the format of w. The rows of the last expert end with the last row. A matrix
 * without rows is not read. A unit is UNIT_ROWS rows of the matrix of an expert that has rows. */
#define EXPERTS(name, cost, inputs)                                   \
  KERNEL(name, EXPERT_UNITS(a), 1, EXPERT_COST(a) * cost,             \
         OUT(f32, y) IN(u8, w) inputs IN(i32, ends) INT(n) INT(u) INT(e) INT(m) INT(k) \
         INT(kernel) INT(size))
EXPERTS(matmul_experts, 4, IN(f32, x))
EXPERTS(matmul_experts_int8, 1, IN(f32, xd) IN(i8, xq) IN(i16, xs))
#undef EXPERTS

/* y[n, d] = sum_j weights[n, j] z[places[n, j], :] in the order of j; places outside of [0, n u)
 * add nothing */
KERNEL(sum_experts, a->n, 1, a->u * a->d * 4,
       OUT(f32, y) IN(f32, z) IN(f32, weights) IN(i32, places) INT(n) INT(u) INT(d))

/* ---- linear/low_rank.inc ---- */

/* y[n, m] += d[m / 16] scale sum_k t[n, offset + k] b[m / 16, k, m % 16] for k < r, in the order of k; a
 * row of t has c numbers. Products are rounded before they are added. */
KERNEL(add_low_rank, (a->m + 15) / 16, 4, a->n * a->r * 16,
       OUT(f32, y) IN(i8, b) IN(f32, d) IN(f32, t) IN(f32, scale) INT(n) INT(m) INT(r) INT(c)
       INT(offset))

#ifndef HB_TEXT_ONLY
/* ---- linear/panels.inc ---- */

/* y[n, m] = activation(r[n, m] + (bias[m] + sum_k x[n, k] w[m, k])). w is in panels of sixteen
 * outputs, [m / 16, k, 16], padded with zeros. May use FMA; sums are made in the order of k. */
KERNEL(matmul_panels_f32, ((a->n + 95) / 96) * ((a->m + 63) / 64), 1, 96 * 64 * a->k,
       OUT(f32, y) IN(f32, w) IN(f32, bias) IN(f32, x) IN(f32, r) INT(n) INT(k) INT(m)
       INT(activation))

/* y[outer, inner, n, m] = sum_k x[.., n, k] w[.., m / 16, k, m % 16]; x_outer, x_inner, w_outer and
 * w_inner are strides between matrices, x_row between rows of x. pack_batched makes such a w from a
 * strided array. May use FMA. */
KERNEL(matmul_batched, a->outer * a->inner * ((a->n + 95) / 96) * ((a->m + 63) / 64), 1,
       96 * 64 * a->k,
       OUT(f32, y) IN(f32, w) IN(f32, x) INT(outer) INT(inner) INT(n) INT(k) INT(m) INT(x_outer)
       INT(x_inner) INT(x_row) INT(w_outer) INT(w_inner))
KERNEL(pack_batched, a->outer * a->inner * ((a->m + 15) / 16), 1, a->k * 64,
       OUT(f32, y) IN(f32, w) INT(outer) INT(inner) INT(k) INT(m) INT(w_outer) INT(w_inner)
       INT(w_row) INT(w_step))

/* y[m / 16, k, 16] = w in panels; `row` and `step` are the strides of w along m and k */
KERNEL(pack_panels_f32, (a->m + 15) / 16, 1, a->k * 64,
       OUT(f32, y) IN(f32, w) INT(k) INT(m) INT(row) INT(step))

/* ---- linear/recurrent.inc ---- */

/* d directions of a recurrent layer of ONNX, n sequences of t steps, with the products of the input
 * `ahead`: see halfbyte/core/ops/recurrent_layer.py. The first direction, if reverse is 1, and the
 * second one begin at the end. h and c, the first states, peephole and lengths may be NULL. Units
 * are those of one stage after the other (run.c). With q, r is NULL: q, sums and scale are the
 * weights of an LSTM as in matmul_quantized, k is at most 2048, and each step's h is quantized as by
 * quantize_tensor, for all sequences of a direction. May use FMA. */
KERNEL(recurrent_layer, LAYER_STAGES(a) * LAYER_UNITS(a), 1,
       32 * a->k * (a->n < LAYER_ROWS ? a->n : LAYER_ROWS),
       OUT(f32, y) OUT(f32, last_h) OUT(f32, last_c) OUT(f32, work) IN(f32, r) IN(i8, q)
       IN(i32, sums) IN(f32, scale) IN(f32, bias) IN(f32, ahead) IN(f32, functions) IN(f32, h)
       IN(f32, c) IN(f32, peephole) IN(i32, lengths) INT(d) INT(n) INT(t) INT(k) INT(p) INT(width)
       INT(cell) INT(reverse) FLOAT(clip))
#endif

/* ---- linear/peak.inc ---- */

/* s[n] = sum of 4096 elements: measures how fast this machine reads memory */
KERNEL(memory_read, a->n, 1, 4096 * 4, OUT(f32, s) IN(f32, x) INT(n))

/* s[n] = 512 sum_{j < 8} sum_{i < 8, r < 16} c[i, r, :] . x[j, i, :], modulo 2^32. c[0..3] are the
 * low four bits of the bytes w[4, 16, 4], c[4..7] the high ones; x[8, 8, 4] is in 0...127. Measures
 * how fast this machine multiplies bytes. */
KERNEL(dot_peak, a->n, 1, 512 * 8 * 8 * 16 * 4, OUT(i32, s) IN(i8, w) IN(i8, x) INT(n))

/* ================================================================================================
 * attention/: rotary positions, the KV cache, attention of language models and of encoders, layers
 * with a state
 * ============================================================================================= */

/* ---- attention/cache.inc ---- */

/* x[n, c] holds c / head_dim heads. In each head, r pairs (a, b) of the first 2 r elements are
 * rotated by the angle given in row position + i of cos[t, r], sin[t, r]: (a cos - b sin, b cos + a
 * sin). Pairs are (2j, 2j + 1) in the interleaved kernel and (j, j + r) in the half-split one;
 * elements from 2 r on are copied. y may be x. */
#define ROTARY(variant)                                                               \
  KERNEL(rotary_embedding_##variant, a->n, 1, a->c * 8,                               \
         OUT(f32, y) IN(f32, x) IN(f32, cos) IN(f32, sin) INT(n) INT(c) INT(t) INT(r) \
         INT(head_dim) INT(position))
ROTARY(interleaved)
ROTARY(half)
#undef ROTARY

/* ---- attention/cache_body.inc ---- */

/* cache[:, position + i, :] = x[i], head by head; rounded to nearest, ties to even, for F16 */
#define WRITE(name, type, rows)          \
  KERNEL(name, a->n, 1, a->g * a->h * 4, \
         OUT(type, cache) IN(f32, x) INT(n) INT(g) INT(h) INT(rows) INT(position))
WRITE(cache_write_f32, f32, t)
WRITE(cache_write_f16, f16, t)

/* cache[:, (position + i) / 16, :, (position + i) % 16] = x[i], head by head: keys are stored in
 * groups of sixteen positions */
WRITE(cache_write_keys_f32, f32, b)
WRITE(cache_write_keys_f16, f16, b)

/* cache_write_keys(rotary_embedding(x)), with the fields of both */
#define ROTARY_KEYS(variant, type)                                                         \
  KERNEL(rotary_cache_write_keys_##variant##_##type, a->n, 1, a->g * a->h * 8,             \
         OUT(type, cache) IN(f32, x) IN(f32, cos) IN(f32, sin) INT(n) INT(g) INT(h) INT(b) \
         INT(t) INT(r) INT(position))
ROTARY_KEYS(interleaved, f32)
ROTARY_KEYS(interleaved, f16)
ROTARY_KEYS(half, f32)
ROTARY_KEYS(half, f16)
#undef ROTARY_KEYS

/* ---- attention/grouped.inc ---- */

/* y[i, u] = sum_j softmax_j(scale q[i, u] . k[g, j]) v[g, j], j <= position + i, where g is u's
 * group of c / (g h) heads. Values are v[g, t, h]; key j is k[g, j / 16, :, j % 16] of k[g, b, h,
 * 16]. If `window` is not 0, also j > position + i - window; keys that no query sees are not read.
 * If `softcap` is not 0, scale q . k becomes softcap * tanh(scale q . k / softcap); slopes[u] (j -
 * position - i) is added, and exp(sinks[u]) to the sum of the softmax, unless they are NULL.
 * Running softmax (the flash-attention recurrence): memory does not depend on the length. */
#define GROUPED(type, keys, values, cost)                                                    \
  KERNEL(group_query_attention_##type, a->g * ((a->n * (a->c / (a->g * a->h)) + 3) / 4), 1,  \
         (a->position + a->n) * a->h * cost,                                                 \
         OUT(f32, y) IN(f32, q) IN(keys, k) IN(values, v) IN(f32, slopes) IN(f32, sinks)     \
         INT(n) INT(c) INT(g) INT(h) INT(b) INT(t) INT(position) INT(window) FLOAT(scale)    \
         FLOAT(softcap))
GROUPED(f32, f32, f32, 16)
GROUPED(f16, f16, f16, 16)

/* ---- attention/recurrent.inc ---- */

/* y[i, c] = bias[c] + sum over t of w[t, c] x[i - k + 1 + t, c], in the order of t, over k = t + 1
 * rows; those before x are in `state`, which keeps the last rows for the next call. At position 0
 * they are zeros. */
KERNEL(causal_conv, (a->c + 15) / 16, 1, a->n * a->k * 16 * 4,
       OUT(f32, y) OUT(f32, state) IN(f32, w) IN(f32, bias) IN(f32, x) INT(n) INT(c) INT(k) INT(t)
       INT(position))

/* For each of c channels, whose states S[s] are stored in blocks of sixteen channels, and for each
 * row: S = exp(dt rate) S + input b, y = sum over s, in order, of S c + skip x, with input = dt x.
 * rate has one number per channel (r = 1) or one per state (r = s). bc holds b[groups, s], then
 * c[groups, s], or the other way round if they are swapped; channels of a group share both, and
 * those of a head dt. Groups have neighbouring heads or, if tiled, head i is of group i % groups.
 * With beta, the delta rule: input = beta (x - exp(dt rate) sum over s of S b). */
KERNEL(selective_scan, a->u, 1, a->n * a->s * 16 * 8,
       OUT(f32, y) OUT(f32, state) IN(f32, rate) IN(f32, skip) IN(f32, x) IN(f32, dt) IN(f32, bc)
       IN(f32, beta) INT(n) INT(c) INT(h) INT(w) INT(u) INT(r) INT(s) INT(groups) INT(position)
       INT(swapped) INT(tiled))

/* The same for channels in heads of s, whose decay and keys have s numbers each: S = decay S + x key
 * - (sum over s, in order, of S removal) correction, y = sum over s, in order, of S query; own is the
 * sum of x key bonus. */
KERNEL(generalized_delta_rule, a->u, 1, a->n * a->s * 16 * 12,
       OUT(f32, y) OUT(f32, own) OUT(f32, state) IN(f32, x) IN(f32, decay) IN(f32, key)
       IN(f32, query) IN(f32, removal) IN(f32, correction) IN(f32, bonus) INT(n) INT(c) INT(u)
       INT(s) INT(position))

/* ---- attention/q8_0.inc ---- */

/* The same with a cache in Q8_0. Rows of values are blocks, encoded as by encode_q8_0. Block j of
 * sixteen positions of a head's keys is cache[head, position / 16, j], as in packed rows. */
WRITE(cache_write_q8_0, q8_0, t)
WRITE(cache_write_keys_q8_0, q8_0_r16, b)
#undef WRITE

/* For each block of 32 elements the query is quantized as by dynamic_quantize; (kd * qd) *
 * float(sum kq qq) are added in the order of blocks, and (weight * vd) * float(vq) in the order of
 * keys. h is a multiple of 32, at most 512. */
GROUPED(q8_0, q8_0_r16, q8_0, 8)
#undef GROUPED

#ifndef HB_TEXT_ONLY
/* ---- attention/panels.inc ---- */

/* y[batch, i, head, e] = sum_j softmax_j(scale q . k + bias[i, j]) v[j], over j <= i + reach. q, k
 * and v begin at the offsets *_at; the other fields with their names are strides, as are those of
 * bias. Heads share kv_heads keys and values in groups. If softcap is not 0, scale q . k becomes
 * softcap * tanh(scale q . k / softcap). If no score is above -inf the result is 0. d and e are at
 * most 256. */
#define STRIDES                                                                                  \
  OUT(f32, y) IN(f32, q) IN(f32, k) IN(f32, v) IN(f32, bias) INT(batch) INT(heads) INT(kv_heads) \
  INT(s) INT(t) INT(d) INT(e) INT(q_at) INT(q_batch) INT(q_head) INT(q_row) INT(k_at)            \
  INT(k_batch) INT(k_head) INT(k_row) INT(v_at) INT(v_batch) INT(v_head) INT(v_row)              \
  INT(bias_batch) INT(bias_head)
KERNEL(attention, a->batch * a->heads * ((a->s + 15) / 16), 2, 16 * a->t * (a->d + a->e),
       STRIDES INT(bias_row) INT(reach) FLOAT(scale) FLOAT(softcap))

/* Attention within each of several texts, whose tokens are the n rows of q, k and v. A unit is a
 * head's block of up to 128 queries; blocks[i] is the row of its text's first token, the text's
 * number of tokens, and the first of the queries among them, a multiple of 128. The score of query
 * i and key j gets bias[head * bias_head + w / 2 + j - i]. Blocks of other rows are skipped. */
#define TEXT_SIZES INT(n) INT(b) INT(heads) INT(kv_heads) INT(d) FLOAT(scale)
KERNEL(attention_texts, a->b * a->heads, 1, (1 << 14) * a->d,
       OUT(f32, y) IN(f32, q) IN(f32, k) IN(f32, v) IN(i32, blocks) IN(f32, bias) TEXT_SIZES INT(w)
       INT(bias_head))

/* ---- attention/quantized.inc ---- */

/* The same in int8, without a limit of reach. Queries, keys and values are quantized by the maximum
 * of each row. For every 128 keys, a query's weights exp(score - highest so far), times the scales
 * of the values, are quantized to unsigned bytes. d and e are multiples of 16 up to 64. */
KERNEL(attention_int8, a->batch * a->heads * ((a->s + 127) / 128), 1, 32 * a->t * (a->d + a->e),
       STRIDES FLOAT(scale))
#undef STRIDES

/* attention_texts in int8, in the same way, without a bias */
KERNEL(attention_texts_int8, a->b * a->heads, 1, (1 << 14) * a->d,
       OUT(f32, y) IN(f32, q) IN(f32, k) IN(f32, v) IN(i32, blocks) TEXT_SIZES)
#undef TEXT_SIZES
#endif

/* ================================================================================================
 * elementwise/: functions of elements and rows, reductions, moves
 * ============================================================================================= */

/* ---- elementwise/activation.inc ---- */

/* y = softmax(x) per row; the maximum is subtracted first */
KERNEL(softmax, a->n, 1, a->d * 8, OUT(f32, y) IN(f32, x) INT(n) INT(d))

/* y = x / (1 + exp(-x)) */
KERNEL(silu, a->n * a->d, 64, 16, OUT(f32, y) IN(f32, x) INT(n) INT(d))

/* y = silu(gate) * up */
KERNEL(swiglu, a->n * a->d, 64, 16, OUT(f32, y) IN(f32, gate) IN(f32, up) INT(n) INT(d))

/* y = x (1 + erf(x / sqrt 2)) / 2 */
KERNEL(gelu_erf, a->n * a->d, 64, 16, OUT(f32, y) IN(f32, x) INT(n) INT(d))

/* y = x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 */
KERNEL(gelu_tanh, a->n * a->d, 64, 16, OUT(f32, y) IN(f32, x) INT(n) INT(d))

/* z = x + y, z = x * y; y has p rows: n, or 1, which is then used for all rows of x */
KERNEL(add, a->n * a->d, 64, 12, OUT(f32, z) IN(f32, x) IN(f32, y) INT(n) INT(p) INT(d))
KERNEL(mul, a->n * a->d, 64, 12, OUT(f32, z) IN(f32, x) IN(f32, y) INT(n) INT(p) INT(d))

/* ---- elementwise/norm.inc ---- */

/* y = x / sqrt(mean(x^2) + epsilon) * weight, for each of the `heads` parts of d numbers in a row
 */
KERNEL(rms_norm, a->n * a->heads, 1, a->d * 8,
       OUT(f32, y) IN(f32, weight) IN(f32, x) INT(n) INT(heads) INT(d) FLOAT(epsilon))

/* y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * weight + bias, per row */
KERNEL(layer_norm, a->n, 1, a->d * 8,
       OUT(f32, y) IN(f32, weight) IN(f32, bias) IN(f32, x) INT(n) INT(d) FLOAT(epsilon))

/* ---- elementwise/broadcast.inc ---- */

/* z = x op y with broadcasting. Rows of d elements of z belong to four outer dimensions. `plan`
 * holds their sizes, then the strides of x over them, then the strides of y. Along a row x and y
 * advance by their step, which is 0 or 1. */
#define BINARY(name)                  \
  KERNEL(binary_##name, a->n, 16, 12, \
         OUT(f32, z) IN(f32, x) IN(f32, y) IN(i32, plan) INT(n) INT(d) INT(x_step) INT(y_step))
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
#undef BINARY

/* y = x, rounded to the nearest float */
KERNEL(cast, a->n, 64, 12, OUT(f32, y) IN(i64, x) INT(n))

/* y = f(x); halfbyte/core/ops/elementwise.py has the formulas with alpha and beta */
#define UNARY(name) \
  KERNEL(unary_##name, a->n * a->d, 64, 16,   \
         OUT(f32, y) IN(f32, x) INT(n) INT(d) FLOAT(alpha) FLOAT(beta))
UNARY(relu)
UNARY(clip)
UNARY(leaky_relu)
UNARY(sigmoid)
UNARY(hard_sigmoid)
UNARY(hard_swish)
UNARY(tanh)
UNARY(erf)
UNARY(exp)
UNARY(log)
UNARY(sqrt)
UNARY(reciprocal)
UNARY(neg)
UNARY(abs)
UNARY(softplus)
#undef UNARY

/* ---- elementwise/move.inc ---- */

/* y[row, i] = x[offset + i step + strides . row] for rows of d elements of four bytes. `plan` holds
 * the sizes and strides of the four outer dimensions of the rows. */
KERNEL(move, a->n, 16, 8, OUT(i32, y) IN(i32, x) IN(i32, plan) INT(n) INT(d) INT(step) INT(offset))

/* y[n, offset + i] = x[n, i] for y[n, t], x[n, d] */
KERNEL(concat_part, a->n, 1, a->d * 8, OUT(i32, y) IN(i32, x) INT(n) INT(t) INT(d) INT(offset))

/* y[i] = start + i step; only the number of `ids` is used */
KERNEL(range_from, a->n, 64, 4, OUT(i32, y) IN(i32, ids) INT(n) INT(start) INT(step))

/* y[rows, d] = x[n - rows :, :] */
KERNEL(last_rows, a->rows, 1, a->d * 4, OUT(f32, y) IN(f32, x) INT(rows) INT(n) INT(d))

/* ---- elementwise/transpose_body.inc ---- */

/* y[n, b, a] = x[n, a, b]; elements have four bytes, or one */
KERNEL(transpose_i32, a->n * ((a->b + 15) / 16), 1, a->a * 16 * 16,
       OUT(i32, y) IN(i32, x) INT(n) INT(a) INT(b))
KERNEL(transpose_i8, a->n * ((a->b + 15) / 16), 1, a->a * 16 * 8,
       OUT(i8, y) IN(i8, x) INT(n) INT(a) INT(b))

#ifndef HB_TEXT_ONLY
/* ---- elementwise/reduce.inc ---- */

/* y[a, c] = x[a, b, c] reduced over b */
KERNEL(reduce_sum,  a->a, 1, a->b * a->c * 4, OUT(f32, y) IN(f32, x) INT(a) INT(b) INT(c))
KERNEL(reduce_mean, a->a, 1, a->b * a->c * 4, OUT(f32, y) IN(f32, x) INT(a) INT(b) INT(c))
KERNEL(reduce_max,  a->a, 1, a->b * a->c * 4, OUT(f32, y) IN(f32, x) INT(a) INT(b) INT(c))
KERNEL(reduce_min,  a->a, 1, a->b * a->c * 4, OUT(f32, y) IN(f32, x) INT(a) INT(b) INT(c))

/* ---- elementwise/quantized.inc ---- */

/* y = zero + round(min(max(x / scale, lo - zero), hi - zero)), ties to even; with lo = -128 the
 * bytes are int8 */
KERNEL(quantize_linear, a->n, 64, 24,
       OUT(u8, y) IN(f32, x) INT(n) FLOAT(scale) INT(zero) INT(lo) INT(hi))

/* range[spans, 2] = minimum and maximum of each 4096 numbers of x and 0 */
KERNEL(tensor_range, a->spans, 1, 4096 * 4, OUT(f32, range) IN(f32, x) INT(n) INT(spans))

/* y[n, k] = zero + round(x / scale) in 0...255, ties to even, with scale = (maximum - minimum) /
 * 255, or 1 if that is 0, and zero = round(-minimum / scale); sums[n] = sum_k y - zero */
KERNEL(quantize_tensor, a->n, 1, a->k * 24,
       OUT(u8, y) OUT(i32, sums) OUT(f32, scale) OUT(u8, zero) IN(f32, x) IN(f32, range) INT(n)
       INT(k) INT(spans))

/* dequantize_linear: y = (x - zero) scale. add_quantized: y = y_zero + round(min(max((x - x_zero)
 * x_scale + (z - z_zero) z_scale, lo - y_zero), hi - y_zero)), ties to even. */
#define QUANTIZED(type)                                                                        \
  KERNEL(dequantize_linear_##type, a->n, 64, 8,                                                \
         OUT(f32, y) IN(type, x) INT(n) FLOAT(scale) INT(zero))                                \
  KERNEL(add_quantized_##type, a->n, 64, 16,                                                   \
         OUT(type, y) IN(type, x) IN(type, z) INT(n) FLOAT(x_scale) INT(x_zero) FLOAT(z_scale) \
         INT(z_zero) INT(y_zero) INT(lo) INT(hi))
QUANTIZED(u8)
QUANTIZED(i8)
#undef QUANTIZED

/* ================================================================================================
 * conv/: images x[n, h, v, c], y[n, p, q, m]; the window of pixel y[., i, j, .] begins at
 * x[., i stride_h - top, j stride_w - left, .]; x is 0 outside of the image
 * ============================================================================================= */

#define WINDOWS                                                                       \
  INT(n) INT(h) INT(v) INT(c) INT(p) INT(q) INT(kernel_h) INT(kernel_w) INT(stride_h) \
  INT(stride_w) INT(dilation_h) INT(dilation_w) INT(top) INT(left)

/* ---- conv/float.inc ---- */

/* y = min(max(bias + sum over the window and a group's channels of x w + r, lo), hi); may use FMA.
 * w[b, k, 16] holds sixteen output channels together, k = (row of the kernel, column, channel);
 * each group begins with a new block of sixteen. */
KERNEL(conv2d, CONV_UNITS(a), CONV_GRAIN(CONV_UNITS(a)),
       a->kernel_h * a->kernel_w * (a->c / a->groups) * UNIT_CHANNELS * STRIP_PIXELS,
       OUT(f32, y) IN(f32, w) IN(f32, bias) IN(f32, x) IN(f32, r) INT(m) INT(groups)
       WINDOWS FLOAT(lo) FLOAT(hi))

/* ---- conv/winograd.inc ---- */

/* conv2d for kernels of 3 x 3 pixels, without strides, dilations and groups, by Winograd's F(2 x 2,
 * 3 x 3). w[16, m / 16, c, 16] are sixteen matrices in panels, of the kernels' transforms. c is a
 * multiple of 16. May use FMA. */
KERNEL(conv2d_winograd, a->n * WINOGRAD_SPANS(a) * WINOGRAD_GROUPS(a->m), 1,
       16 * PATCHES * 64 * a->c,
       OUT(f32, y) IN(f32, w) IN(f32, bias) IN(f32, x) IN(f32, r) INT(m) INT(n) INT(h) INT(v)
       INT(c) INT(p) INT(q) INT(top) INT(left) FLOAT(lo) FLOAT(hi))

/* ---- conv/quantized.inc ---- */

/* 8-bit quantized: y = y_zero + round(min(max(scale total, lo - y_zero), hi - y_zero)), ties to
 * even, total = bias + sum over the window and a group's channels of (x - x_zero) w, an int32; x is
 * x_zero outside of the image. w[b, k, 16, 4] holds four numbers of each of sixteen output channels
 * together. Each run of numbers that are contiguous in x is padded with zeros to a multiple of
 * four: a row of the kernel or, with groups or dilation_w > 1, a pixel. sums[m] = sum of each
 * output channel's weights. */
#define QUANTIZED(type)                                                                       \
  KERNEL(conv2d_quantized_##type, CONV_UNITS(a), CONV_GRAIN(CONV_UNITS(a)),                   \
         a->kernel_h * a->kernel_w * (a->c / a->groups) * (UNIT_CHANNELS / 4) * STRIP_PIXELS, \
         OUT(type, y) IN(i8, w) IN(i32, bias) IN(i32, sums) IN(f32, scale) IN(type, x) INT(m) \
         INT(groups) WINDOWS INT(x_zero) INT(y_zero) INT(lo) INT(hi))
QUANTIZED(u8)
QUANTIZED(i8)
#undef QUANTIZED

/* y[n, m] = activation(r[n, m] + (bias[m] + (x_scale scale[m]) total)), total = sum over k of (x -
 * x_zero) (w - zeros[m]), an int32; the product is rounded before it is added. w and sums are as
 * above, for a kernel of one pixel; x_sums[n] = sum_k x - x_zero. zeros and r may be NULL. */
KERNEL(matmul_quantized, SPANS_OF(a->n) * PARTS_OF(a->m), 2,
       a->k * (UNIT_CHANNELS / 4) * STRIP_PIXELS,
       OUT(f32, y) IN(i8, w) IN(i32, sums) IN(f32, scale) IN(f32, bias) IN(i32, zeros) IN(u8, x)
       IN(f32, x_scale) IN(u8, x_zero) IN(i32, x_sums) IN(f32, r) INT(n) INT(k) INT(m)
       INT(activation))

/* ---- conv/depthwise.inc ---- */

/* y = min(max(bias + sum over the window of x w, lo), hi) for each channel separately; may use FMA;
 * w[kernel_h kernel_w, c] */
KERNEL(conv2d_depthwise, a->n * a->p, 1, a->q * a->c * a->kernel_h * a->kernel_w,
       OUT(f32, y) IN(f32, w) IN(f32, bias) IN(f32, x) WINDOWS FLOAT(lo) FLOAT(hi))

/* conv2d_quantized for each channel separately; quantized weights w[kernel_h kernel_w, c] as
 * floats, at most 512 taps */
#define QUANTIZED(type)                                                                         \
  KERNEL(conv2d_depthwise_quantized_##type, a->n * a->p, DEPTHWISE_GRAIN(a->p),                 \
         a->q * a->c * a->kernel_h * a->kernel_w,                                               \
         OUT(type, y) IN(f32, w) IN(i32, bias) IN(i32, sums) IN(f32, scale) IN(type, x) WINDOWS \
         INT(x_zero) INT(y_zero) INT(lo) INT(hi))
QUANTIZED(u8)
QUANTIZED(i8)
#undef QUANTIZED

/* ---- conv/pool.inc ---- */

/* y = maximum of the part of the window inside of x; -infinity, or the minimum of the type, if
 * there is none */
#define MAX_POOL(type, bytes)                                                              \
  KERNEL(max_pool_##type, a->n * a->p, 1, a->q * a->c * a->kernel_h * a->kernel_w * bytes, \
         OUT(type, y) IN(type, x) WINDOWS)
MAX_POOL(f32, 4)
MAX_POOL(u8, 1)
MAX_POOL(i8, 1)
#undef MAX_POOL

/* y = sum over the part of the window inside of x, divided by the number of its elements; if
 * count_include_pad is 1, elements of the padding count too */
KERNEL(average_pool, a->n * a->p, 1, a->q * a->c * a->kernel_h * a->kernel_w * 4,
       OUT(f32, y) IN(f32, x) WINDOWS INT(bottom) INT(right) INT(count_include_pad))
#undef WINDOWS

/* y[n, i, j, :] = x[n, rows[i], columns[j], :] */
KERNEL(resize_nearest, a->n * a->p, 1, a->q * a->c * 2,
       OUT(i8, y) IN(i8, x) IN(i32, rows) IN(i32, columns) INT(n) INT(h) INT(v) INT(c) INT(p)
       INT(q))

/* y[n, i, j, :] = sum over t, u of row_weights[i, t] column_weights[j, u] x[n, rows[i, t],
 * columns[j, u], :] */
KERNEL(resize_linear, a->n * a->p, 1, a->q * a->c * a->t * a->t * 4,
       OUT(f32, y) IN(f32, x) IN(i32, rows) IN(f32, row_weights) IN(i32, columns)
       IN(f32, column_weights) INT(n) INT(h) INT(v) INT(c) INT(p) INT(q) INT(t))

/* ---- conv/sample.inc ---- */

/* y[n, i] = x[n] between its elements, at grid[n, i] from -1 to 1: r positions, along v first, then
 * h, then d. An axis has 1 (the nearest), 2 (linear) or 4 (cubic) taps. Outside of x is 0, the
 * nearest element of x, or its reflection, by padding; align_corners is 1 if -1 and 1 are the centers
 * of the elements at the ends, 0 if they are their outer edges. */
KERNEL(grid_sample, a->n * a->p, 16, a->c * a->taps * a->taps * 4 + 64,
       OUT(f32, y) IN(f32, x) IN(f32, grid) INT(n) INT(d) INT(h) INT(v) INT(c) INT(p) INT(r)
       INT(taps) INT(padding) INT(align_corners))
#endif

/* ================================================================================================
 * encode/: kernels of the quantizer; definitions in halfbyte/weights/, quantize/scale_search.py and
 * quantize/steps.py
 * ============================================================================================= */

/* ---- encode/encode.inc ---- */

/* w[n, k] = x in the format: byte-identical to gguf.quants */
KERNEL(encode_f16,  a->n, 1, a->k * 6, OUT(f16, w) IN(f32, x) INT(n) INT(k))
KERNEL(encode_bf16, a->n, 1, a->k * 6, OUT(bf16, w) IN(f32, x) INT(n) INT(k))

/* s[n, 2] = sum x^2, sum (x - y)^2 per row: signal and noise in the report */
KERNEL(square_error, a->n, 1, a->k * 8, OUT(f32, s) IN(f32, x) IN(f32, y) INT(n) INT(k))

/* s[k] += sum over rows of x^2: the energy of each column; runs on one thread */
KERNEL(column_energy, 1, 1, a->n * a->k * 4, OUT(f32, s) IN(f32, x) INT(n) INT(k))

/* ---- encode/encode_body.inc ---- */

/* The same for formats with a scale per block */
KERNEL(encode_q8_0, a->n, 1, a->k * 6, OUT(q8_0, w) IN(f32, x) INT(n) INT(k))
KERNEL(encode_q4_0, a->n, 1, a->k * 6, OUT(q4_0, w) IN(f32, x) INT(n) INT(k))

/* ---- encode/search.inc ---- */

/* What a number over its scale may be: whole numbers from lowest to highest, or with t > 0 one of
 * the t + 1 values, the first as far as between[0], and so on; with `both`, these are magnitudes of
 * numbers of both signs. */
#define LEVELS IN(f32, values) IN(f32, between) INT(t) INT(both) FLOAT(lowest) FLOAT(highest)

/* w[n, k / part * bytes]: blocks with an F16 scale, and a minimum after it where `minimum` is set,
 * at byte `at`, or with powers the exponent of a scale; these are searched
 * (quantize/scale_search.py) for the smallest sum of importance[k] (x - w)^2, with c factors, which
 * with minima are followed by what is added.
 * error[n, 2] = that sum per row with plain rounding, and with the scales chosen. Integers plus
 * `offset` are packed as by encode_pack and rounded as by encode_integers. */
KERNEL(encode_search, (a->n + 15) / 16, 1, 16 * a->k * (a->c + 4) * (8 + a->t),
       OUT(u8, w) OUT(f32, error) IN(f32, x) IN(f32, importance) IN(f32, factors) LEVELS
       IN(i32, planes) INT(n) INT(k) INT(part) INT(bytes) INT(p) INT(c) INT(at) INT(minimum)
       INT(powers) INT(away) FLOAT(bias) FLOAT(offset))

#ifndef __wasm__
/* ---- encode/plain.inc ---- */

/* Plain rounding to the others of blocks of 32: byte-identical to gguf.quants, but for the signs of
 * zeros among scales and minima */
KERNEL(encode_q4_1, a->n, 1, a->k * 6, OUT(q4_1, w) IN(f32, x) INT(n) INT(k))
KERNEL(encode_q5_0, a->n, 1, a->k * 6, OUT(q5_0, w) IN(f32, x) INT(n) INT(k))
KERNEL(encode_q5_1, a->n, 1, a->k * 6, OUT(q5_1, w) IN(f32, x) INT(n) INT(k))

/* ---- encode/parts.inc ---- */

/* For the other formats, step by step. A row has k / part parts. */
#define PARTS INT(n) INT(k) INT(part)

/* low, high[n, k / part] = the smallest and the largest of x, and the first of its largest in
 * magnitude */
KERNEL(encode_extremes, a->n, 1, a->k * 6,
       OUT(f32, low) OUT(f32, high) OUT(f32, first) IN(f32, x) PARTS)

/* a[n, k / part] = the scale of least squares, of integers of x times inverse times one of the
 * at most 8 factors; where none is better than zeros, the scale given. With powers, the scale over
 * the factor. */
KERNEL(encode_slopes, (a->n + 15) / 16, 1, 16 * a->k * a->c * (4 + a->t),
       OUT(f32, a) IN(f32, x) IN(f32, importance) IN(f32, inverse) IN(f32, scales) IN(f32, factors)
       LEVELS PARTS INT(c) INT(powers))

/* The same for scales a and minima b, where wanted at most 0, of whole numbers from 0 to highest;
 * factors are followed by what is added, at least -1/2. All lines or the best one are fitted
 * twice. */
KERNEL(encode_lines, (a->n + 15) / 16, 1, 16 * a->k * a->c * 8,
       OUT(f32, a) OUT(f32, b) IN(f32, x) IN(f32, importance) IN(f32, inverse) IN(f32, scales)
       IN(f32, minima) IN(f32, factors) FLOAT(highest) PARTS INT(c) INT(negative) INT(all))

/* q[n, k] = integers of (x - minima) inverse, from 0 on; error[n, k / part] = sum of importance
 * (x - d q - m)^2. With a bias, whole numbers are truncated after it is added; with `away`, halves
 * are rounded away from zero, otherwise to even. */
KERNEL(encode_integers, (a->n + 15) / 16, 1, 16 * a->k * (8 + a->t),
       OUT(u8, q) OUT(f32, error) IN(f32, x) IN(f32, importance) IN(f32, inverse) IN(f32, minima)
       IN(f32, d) IN(f32, m) LEVELS PARTS INT(away) FLOAT(bias))
#undef PARTS

/* w[n, k / block * bytes]: the integers q[n, k] as bits of blocks, whose other bytes stay. Each of p
 * planes has offset, shift, bits and run: see Plane in halfbyte/weights/base.py. */
KERNEL(encode_pack, a->n, 1, a->k * 2,
       OUT(u8, w) IN(u8, q) IN(i32, planes) INT(n) INT(k) INT(block) INT(bytes) INT(p))

/* ---- encode/convert.inc ---- */

/* y[n] = blocks of codes of `bits` bits, from n blocks of `bytes` bytes. Five fields of a block
 * follow one another: d, low and high bits of indices, signs for eight numbers, s (d (2 s + 1) is
 * the scale). Each is count, bits, and `count` positions: 16 times a byte's, plus a bit's. An index
 * has `digits` codes in the grid, 8 or 4, without the sign, which is the highest bit. */
KERNEL(convert_grids, a->n, 16, 1024,
       OUT(u8, y) IN(u8, w) IN(u8, grid) IN(i16, fields) INT(n) INT(bytes) INT(digits) INT(kind)
       INT(bits))
#endif
#undef LEVELS

// clang-format on
