/* The list of kernels: one entry each, included several times with KERNEL, OUT, IN, INT and FLOAT
 * defined for the purpose at hand (argument structs, dispatch tables, the text that Python parses).
 *
 *   KERNEL(name, units, grain, cost, fields)
 *
 * units  how many pieces the work falls into, from the arguments `a`; a kernel runs [begin, end) of
 * them grain  a chunk of units begins at a multiple of it cost   bytes or operations per unit,
 * whichever is more; decides how small a chunk is worth a thread fields in the order outputs,
 * weights, scales, inputs, sizes, scalars; names are those of the operator (operands, dimensions of
 * its signature, attributes)
 *
 * `n` counts rows of activations, `k` their columns, `m` rows of a weight matrix [m, k].
 */

/* ---- linear.inc ------------------------------------------------------------------------------ */

/* y[n, d] = w[ids[n], :], decoded; ids outside [0, v) give a row of zeros */
KERNEL(gather_f32, a->n, 1, a->d * 4, OUT(f32, y) IN(f32, w) IN(i32, ids) INT(n) INT(v) INT(d))
KERNEL(gather_f16, a->n, 1, a->d * 4, OUT(f32, y) IN(f16, w) IN(i32, ids) INT(n) INT(v) INT(d))
KERNEL(gather_bf16, a->n, 1, a->d * 4, OUT(f32, y) IN(bf16, w) IN(i32, ids) INT(n) INT(v) INT(d))
KERNEL(gather_q8_0, a->n, 1, a->d * 4, OUT(f32, y) IN(q8_0, w) IN(i32, ids) INT(n) INT(v) INT(d))
KERNEL(gather_q4_0, a->n, 1, a->d * 4, OUT(f32, y) IN(q4_0, w) IN(i32, ids) INT(n) INT(v) INT(d))
KERNEL(gather_q8_0_r16, a->n, 1, a->d * 8,
       OUT(f32, y) IN(q8_0_r16, w) IN(i32, ids) INT(n) INT(v) INT(d))
KERNEL(gather_q4_0_r16, a->n, 1, a->d * 8,
       OUT(f32, y) IN(q4_0_r16, w) IN(i32, ids) INT(n) INT(v) INT(d))

/* y[n, m] = r[n, m] + sum_k x[n, k] w[m, k], float activations; may use FMA; sums in 16 lanes; here
 * and below, r is NULL where nothing is added */
KERNEL(matmul_f32, a->m, 4, a->n * a->k * 4,
       OUT(f32, y) IN(f32, w) IN(f32, x) IN(f32, r) INT(n) INT(k) INT(m))
KERNEL(matmul_f16, a->m, 4, a->n * a->k * 2,
       OUT(f32, y) IN(f16, w) IN(f32, x) IN(f32, r) INT(n) INT(k) INT(m))
KERNEL(matmul_bf16, a->m, 4, a->n * a->k * 2,
       OUT(f32, y) IN(bf16, w) IN(f32, x) IN(f32, r) INT(n) INT(k) INT(m))
KERNEL(matmul_q8_0, a->m, 4, a->n * a->k * 2,
       OUT(f32, y) IN(q8_0, w) IN(f32, x) IN(f32, r) INT(n) INT(k) INT(m))
KERNEL(matmul_q4_0, a->m, 4, a->n * a->k * 2,
       OUT(f32, y) IN(q4_0, w) IN(f32, x) IN(f32, r) INT(n) INT(k) INT(m))

/* xq[n, k], xd[n, k/32], xs[n, k/16] = x per block of 32: d = max|x| / 127, q = round-half-even(x *
 * (127 / max|x|)) in [-127, 127], s = sum q of either half; a block with max|x| = 0, or too small
 * for 127 / max|x| to be finite, is all zero */
KERNEL(dynamic_quantize, a->n*(a->k / 32), 4, 32 * 4,
       OUT(i8, xq) OUT(f32, xd) OUT(i16, xs) IN(f32, x) INT(n) INT(k))

/* y[n, m] = r[n, m] + sum over blocks b in order of (w.d[m, b] * xd[n, b]) * float(sum_32 w.q *
 * xq), exact integers, multiply then add: bit-identical on every table. Q4_0 takes its offset of 8
 * out through xs. */
KERNEL(matmul_int8_q8_0, a->m, 16, a->n * a->k,
       OUT(f32, y) IN(q8_0, w) IN(f32, xd) IN(i8, xq) IN(i16, xs) IN(f32, r) INT(n) INT(k) INT(m))
KERNEL(matmul_int8_q4_0, a->m, 16, a->n * a->k,
       OUT(f32, y) IN(q4_0, w) IN(f32, xd) IN(i8, xq) IN(i16, xs) IN(f32, r) INT(n) INT(k) INT(m))
KERNEL(matmul_int8_q8_0_r16, a->m, 16, a->n * a->k,
       OUT(f32, y) IN(q8_0_r16, w) IN(f32, xd) IN(i8, xq) IN(i16, xs) IN(f32, r) INT(n) INT(k)
           INT(m))
KERNEL(matmul_int8_q4_0_r16, a->m, 16, a->n * a->k,
       OUT(f32, y) IN(q4_0_r16, w) IN(f32, xd) IN(i8, xq) IN(i16, xs) IN(f32, r) INT(n) INT(k)
           INT(m))

/* y[m, k] = w in the packed layout; y may be w where `scratch` has room for sixteen rows, which
 * one thread may use at a time */
KERNEL(pack_q8_0, a->m, 16, a->k, OUT(q8_0_r16, y) OUT(q8_0, scratch) IN(q8_0, w) INT(k) INT(m))
KERNEL(pack_q4_0, a->m, 16, a->k, OUT(q4_0_r16, y) OUT(q4_0, scratch) IN(q4_0, w) INT(k) INT(m))

/* ---- linear_blocks.inc ----------------------------------------------------------------------- */

/* All of the above for the formats whose blocks have minima or scales within scales: Q4_1, Q5_0,
 * Q5_1 and the K-quants. Products with int8 activations add, in the order of a row's blocks of 32
 * or 16 columns, (d * xd) * float(sum q * xq), and, where there are minima, m * (xd * float(xs)).
 */
#define BLOCKS(type)                                                                               \
  KERNEL(gather_##type, a->n, 1, a->d * 8,                                                         \
         OUT(f32, y) IN(type, w) IN(i32, ids) INT(n) INT(v) INT(d))                                \
  KERNEL(gather_##type##_r16, a->n, 1, a->d * 8,                                                   \
         OUT(f32, y) IN(type##_r16, w) IN(i32, ids) INT(n) INT(v) INT(d))                          \
  KERNEL(matmul_##type, a->m, 16, a->n * a->k * 4,                                                 \
         OUT(f32, y) IN(type, w) IN(f32, x) IN(f32, r) INT(n) INT(k) INT(m))                       \
  KERNEL(matmul_int8_##type, a->m, 16, a->n * a->k,                                                \
         OUT(f32, y) IN(type, w) IN(f32, xd) IN(i8, xq) IN(i16, xs) IN(f32, r) INT(n) INT(k)       \
             INT(m))                                                                               \
  KERNEL(matmul_int8_##type##_r16, a->m, 16, a->n * a->k,                                          \
         OUT(f32, y) IN(type##_r16, w) IN(f32, xd) IN(i8, xq) IN(i16, xs) IN(f32, r) INT(n) INT(k) \
             INT(m))                                                                               \
  KERNEL(pack_##type, a->m, 16, a->k,                                                              \
         OUT(type##_r16, y) OUT(type, scratch) IN(type, w) INT(k) INT(m))
BLOCKS(q4_1)
BLOCKS(q5_0)
BLOCKS(q5_1)
BLOCKS(q4_k)
BLOCKS(q5_k)
BLOCKS(q6_k)
#undef BLOCKS

/* ---- linear_int8.inc ------------------------------------------------------------------------- */

/* dynamic_quantize(rms_norm(x)) */
KERNEL(rms_norm_quantize, a->n, 1, a->d * 8,
       OUT(i8, xq) OUT(f32, xd) OUT(i16, xs) IN(f32, weight) IN(f32, x) INT(n) INT(d)
           FLOAT(epsilon))

/* dynamic_quantize(silu(gate) * up) */
KERNEL(swiglu_quantize, a->n*(a->d / 32), 4, 32 * 16,
       OUT(i8, xq) OUT(f32, xd) OUT(i16, xs) IN(f32, gate) IN(f32, up) INT(n) INT(d))

/* y[i] = start + i; of `ids` only the number counts */
KERNEL(range_from, a->n, 64, 4, OUT(i32, y) IN(i32, ids) INT(n) INT(start))

/* y[rows, d] = x[n - rows :, :] */
KERNEL(take_last, a->rows, 1, a->d * 4, OUT(f32, y) IN(f32, x) INT(rows) INT(n) INT(d))

/* ---- norm.inc -------------------------------------------------------------------------------- */

/* y = x / sqrt(mean(x^2) + epsilon) * weight, for each of the `heads` parts of d numbers of a row
 */
KERNEL(rms_norm, a->n * a->heads, 1, a->d * 8,
       OUT(f32, y) IN(f32, weight) IN(f32, x) INT(n) INT(heads) INT(d) FLOAT(epsilon))

/* y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * weight + bias, per row */
KERNEL(layer_norm, a->n, 1, a->d * 8,
       OUT(f32, y) IN(f32, weight) IN(f32, bias) IN(f32, x) INT(n) INT(d) FLOAT(epsilon))

/* ---- attention.inc --------------------------------------------------------------------------- */

/* x[n, c] holds c / head_dim heads; in each, r pairs (a, b) of the first 2 r elements are turned by
 * the angle of row position + i of cos[t, r], sin[t, r]: (a cos - b sin, b cos + a sin). Pairs are
 * (2j, 2j + 1) in the interleaved kernel and (j, j + r) in the half-split one; elements from 2 r on
 * are copied. y may be x. */
KERNEL(rotary_embedding_interleaved, a->n, 1, a->c * 8,
       OUT(f32, y) IN(f32, x) IN(f32, cos) IN(f32, sin) INT(n) INT(c) INT(t) INT(r) INT(head_dim)
           INT(position))
KERNEL(rotary_embedding_half, a->n, 1, a->c * 8,
       OUT(f32, y) IN(f32, x) IN(f32, cos) IN(f32, sin) INT(n) INT(c) INT(t) INT(r) INT(head_dim)
           INT(position))

/* cache[:, position + i, :] = x[i], head by head; for F16 rounded (to nearest, ties to even) */
KERNEL(cache_write_f32, a->n, 1, a->g * a->h * 4,
       OUT(f32, cache) IN(f32, x) INT(n) INT(g) INT(h) INT(t) INT(position))
KERNEL(cache_write_f16, a->n, 1, a->g * a->h * 4,
       OUT(f16, cache) IN(f32, x) INT(n) INT(g) INT(h) INT(t) INT(position))

/* cache[:, (position + i) / 16, :, (position + i) % 16] = x[i], head by head: keys lie sixteen
 * positions together */
KERNEL(cache_write_keys_f32, a->n, 1, a->g * a->h * 4,
       OUT(f32, cache) IN(f32, x) INT(n) INT(g) INT(h) INT(b) INT(position))
KERNEL(cache_write_keys_f16, a->n, 1, a->g * a->h * 4,
       OUT(f16, cache) IN(f32, x) INT(n) INT(g) INT(h) INT(b) INT(position))

/* cache_write_keys of the rotary embedding; fields as in both */
KERNEL(rotary_cache_write_keys_interleaved_f32, a->n, 1, a->g * a->h * 8,
       OUT(f32, cache) IN(f32, x) IN(f32, cos) IN(f32, sin) INT(n) INT(g) INT(h) INT(b) INT(t)
           INT(r) INT(position))
KERNEL(rotary_cache_write_keys_interleaved_f16, a->n, 1, a->g * a->h * 8,
       OUT(f16, cache) IN(f32, x) IN(f32, cos) IN(f32, sin) INT(n) INT(g) INT(h) INT(b) INT(t)
           INT(r) INT(position))
KERNEL(rotary_cache_write_keys_half_f32, a->n, 1, a->g * a->h * 8,
       OUT(f32, cache) IN(f32, x) IN(f32, cos) IN(f32, sin) INT(n) INT(g) INT(h) INT(b) INT(t)
           INT(r) INT(position))
KERNEL(rotary_cache_write_keys_half_f16, a->n, 1, a->g * a->h * 8,
       OUT(f16, cache) IN(f32, x) IN(f32, cos) IN(f32, sin) INT(n) INT(g) INT(h) INT(b) INT(t)
           INT(r) INT(position))

/* y[i, u] = sum_j softmax_j(scale q[i, u] . k[g, j]) v[g, j], j <= position + i, g = u's group of
 * c / (g h) heads; v[g, t, h], and key j is k[g, j / 16, :, j % 16] of k[g, b, h, 16]. Unless
 * `window` is 0, j > position + i - window too; what no query sees is not read. Running
 * softmax (the flash-attention recurrence): memory independent of the length. */
KERNEL(group_query_attention_f32, a->g*((a->n * (a->c / (a->g * a->h)) + 3) / 4), 1,
       (a->position + a->n) * a->h * 16,
       OUT(f32, y) IN(f32, q) IN(f32, k) IN(f32, v) INT(n) INT(c) INT(g) INT(h) INT(b) INT(t)
           INT(position) INT(window) FLOAT(scale))
KERNEL(group_query_attention_f16, a->g*((a->n * (a->c / (a->g * a->h)) + 3) / 4), 1,
       (a->position + a->n) * a->h * 16,
       OUT(f32, y) IN(f32, q) IN(f16, k) IN(f16, v) INT(n) INT(c) INT(g) INT(h) INT(b) INT(t)
           INT(position) INT(window) FLOAT(scale))

/* ---- attention_q8_0.inc ---------------------------------------------------------------------- */

/* The same with a cache in Q8_0: rows of values are blocks, encoded as by encode_q8_0; of a head's
 * keys, block j of sixteen positions is cache[head, place / 16, j], as in packed rows. */
KERNEL(cache_write_q8_0, a->n, 1, a->g * a->h * 4,
       OUT(q8_0, cache) IN(f32, x) INT(n) INT(g) INT(h) INT(t) INT(position))
KERNEL(cache_write_keys_q8_0, a->n, 1, a->g * a->h * 4,
       OUT(q8_0_r16, cache) IN(f32, x) INT(n) INT(g) INT(h) INT(b) INT(position))

/* Per block of 32 elements the query is quantized as by dynamic_quantize, (kd * qd) * float(sum kq
 * qq) are added in the order of blocks, and (weight * vd) * float(vq) in the order of keys. h is a
 * multiple of 32, at most 512. */
KERNEL(group_query_attention_q8_0, a->g*((a->n * (a->c / (a->g * a->h)) + 3) / 4), 1,
       (a->position + a->n) * a->h * 8,
       OUT(f32, y) IN(f32, q) IN(q8_0_r16, k) IN(q8_0, v) INT(n) INT(c) INT(g) INT(h) INT(b) INT(t)
           INT(position) INT(window) FLOAT(scale))

/* ---- activation.inc -------------------------------------------------------------------------- */

/* y = softmax(x) per row, maximum subtracted */
KERNEL(softmax, a->n, 1, a->d * 8, OUT(f32, y) IN(f32, x) INT(n) INT(d))

/* y = x / (1 + exp(-x)) */
KERNEL(silu, a->n * a->d, 64, 16, OUT(f32, y) IN(f32, x) INT(n) INT(d))

/* y = silu(gate) * up */
KERNEL(swiglu, a->n * a->d, 64, 16, OUT(f32, y) IN(f32, gate) IN(f32, up) INT(n) INT(d))

/* y = x (1 + erf(x / sqrt 2)) / 2 */
KERNEL(gelu_erf, a->n * a->d, 64, 16, OUT(f32, y) IN(f32, x) INT(n) INT(d))

/* y = x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 */
KERNEL(gelu_tanh, a->n * a->d, 64, 16, OUT(f32, y) IN(f32, x) INT(n) INT(d))

/* z = x + y; y is one row for all where its row count p is 1 */
KERNEL(add, a->n * a->d, 64, 12, OUT(f32, z) IN(f32, x) IN(f32, y) INT(n) INT(p) INT(d))

/* z = x * y; y is one row for all where its row count p is 1 */
KERNEL(mul, a->n * a->d, 64, 12, OUT(f32, z) IN(f32, x) IN(f32, y) INT(n) INT(p) INT(d))

/* ---- encode.inc: the quantizer's; definitions in weights.py, search.py
 * ---------------------------------- */

/* w[n, k] = x rounded to the format: byte-identical to gguf.quants */
KERNEL(encode_f16, a->n, 1, a->k * 6, OUT(f16, w) IN(f32, x) INT(n) INT(k))
KERNEL(encode_bf16, a->n, 1, a->k * 6, OUT(bf16, w) IN(f32, x) INT(n) INT(k))
KERNEL(encode_q8_0, a->n, 1, a->k * 6, OUT(q8_0, w) IN(f32, x) INT(n) INT(k))
KERNEL(encode_q4_0, a->n, 1, a->k * 6, OUT(q4_0, w) IN(f32, x) INT(n) INT(k))

/* w[n, k]: each block's scale searched for the smallest sum of importance[k] (x - w)^2;
 * error[n, 2] = that sum per row for plain rounding, and for what was chosen; see search.py */
KERNEL(encode_search_q8_0, a->n, 1, a->k * 32,
       OUT(q8_0, w) OUT(f32, error) IN(f32, x) IN(f32, importance) INT(n) INT(k))
KERNEL(encode_search_q4_0, a->n, 1, a->k * 32,
       OUT(q4_0, w) OUT(f32, error) IN(f32, x) IN(f32, importance) INT(n) INT(k))

/* s[n, 2] = sum x^2, sum (x - y)^2 per row: signal and noise of the report */
KERNEL(square_error, a->n, 1, a->k * 8, OUT(f32, s) IN(f32, x) IN(f32, y) INT(n) INT(k))

/* s[k] += sum over rows of x^2: the energy of each column; not split */
KERNEL(column_energy, 1, 1, a->n * a->k * 4, OUT(f32, s) IN(f32, x) INT(n) INT(k))

/* ---- linear.inc: the benchmark's ------------------------------------------------------------- */

/* s[n] = sum of 4096 elements each: how fast this machine reads memory */
KERNEL(memory_read, a->n, 1, 4096 * 4, OUT(f32, s) IN(f32, x) INT(n))

/* ---- linear_packed.inc: the benchmark's ------------------------------------------------------ */

/* s[n] = 512 sum_{j < 8} sum_{i < 8, r < 16} c[i, r, :] . x[j, i, :], modulo 2^32; c[i] is the low
 * four bits of the bytes w[4, 16, 4], then the high ones; x[8, 8, 4] is from 0 to 127: how fast
 * this machine multiplies bytes */
KERNEL(dot_peak, a->n, 1, 512 * 8 * 8 * 16 * 4, OUT(i32, s) IN(i8, w) IN(i8, x) INT(n))
