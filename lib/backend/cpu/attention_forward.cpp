#include <cmath>
#include <limits>

#include "backend/cpu/attention_blocks.hpp"

namespace tessera::cpu {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Running state of a block of queries.
struct QueryBlock {
  alignas(64) float scores[kBlock * kBlock];
  float maximum[kBlock];
  float total[kBlock];
};

/// Turns a row of scores into e^(score − maximum), keys from `keys` on being hidden; returns the
/// factor for what was summed under the old maximum.
float softmax_row(QueryBlock& block, std::int64_t row, std::int64_t keys) {
  float* scores = block.scores + row * kBlock;
  for (std::int64_t j = keys; j < kBlock; ++j) scores[j] = kMinusInfinity;
  const float before = block.maximum[row];
  const float now = std::max(before, reduce_block<kernels::Reduction::kMax>(scores, kBlock));
  for (std::int64_t j = 0; j < kBlock; ++j) scores[j] = kernels::exp(scores[j] - now);
  const float factor = kernels::exp(before - now);
  block.maximum[row] = now;
  block.total[row] =
      block.total[row] * factor + reduce_block<kernels::Reduction::kSum>(scores, kBlock);
  return factor;
}

/// One head: packed q (scaled) [rows, width], transposed k [width, rows], v [rows, width]; writes
/// out [rows, width] and lse [time].
void forward_head(const HeadLayout& head, const float* q, const float* k_transposed, const float* v,
                  float* out, float* lse) {
  QueryBlock block;
  for (std::int64_t first = 0; first < head.time; first += kBlock) {
    const std::int64_t queries = std::min(kBlock, head.time - first);
    const std::int64_t padded = round_up(queries, kRowPadding);
    float* sums = out + first * head.width;
    std::fill(sums, sums + padded * head.width, 0.0f);
    std::fill(block.maximum, block.maximum + kBlock, kMinusInfinity);
    std::fill(block.total, block.total + kBlock, 0.0f);
    for (std::int64_t key = 0; key <= first; key += kBlock) {
      small_gemm(padded, kBlock, head.size, {q + first * head.width, head.width, 1},
                 k_transposed + key, head.rows, block.scores, kBlock, false);
      for (std::int64_t r = 0; r < padded; ++r) {
        const std::int64_t visible = key < first ? kBlock : std::min(r, queries - 1) + 1;
        const float factor = softmax_row(block, r, visible);
        for (std::int64_t i = 0; i < head.width; ++i) sums[r * head.width + i] *= factor;
      }
      const std::int64_t keys = std::min(kBlock, head.time - key);
      small_gemm(padded, head.width, keys, {block.scores, kBlock, 1}, v + key * head.width,
                 head.width, sums, head.width, true);
    }
    for (std::int64_t r = 0; r < queries; ++r) {
      const float inverse = 1.0f / block.total[r];
      for (std::int64_t i = 0; i < head.width; ++i) sums[r * head.width + i] *= inverse;
      lse[first + r] = block.maximum[r] + std::log(block.total[r]);
    }
  }
}

}  // namespace

template <typename T>
void attention_forward(Device& device, const AttentionShape& shape, const T* q, const T* k,
                       const T* v, T* output, float* lse) {
  if (shape.time == 0 || shape.size == 0) return;
  const HeadLayout head(shape);
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::int64_t q_stride = shape.heads * shape.size;
  const std::int64_t kv_stride = shape.kv_heads * shape.size;
  device.parallel_for(shape.batch * shape.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    const Workspace<float> packed(device, 4 * head.elements());
    float* query = packed.data();
    float* keys = query + head.elements();
    float* values = keys + head.elements();
    float* out = values + head.elements();
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t b = unit / shape.kv_heads;
      const std::int64_t kv = unit % shape.kv_heads;
      const std::int64_t kv_offset = b * shape.time * kv_stride + kv * shape.size;
      pack(head, k + kv_offset, kv_stride, 1.0f, out);
      pack_transposed(head, out, keys);
      pack(head, v + kv_offset, kv_stride, 1.0f, values);
      for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
        const std::int64_t q_offset = b * shape.time * q_stride + h * shape.size;
        pack(head, q + q_offset, q_stride, shape.scale, query);
        forward_head(head, query, keys, values, out, lse + (b * shape.heads + h) * shape.time);
        unpack(head, out, output + q_offset, q_stride, false);
      }
    }
  });
}

template void attention_forward(Device&, const AttentionShape&, const float*, const float*,
                                const float*, float*, float*);
template void attention_forward(Device&, const AttentionShape&, const BF16*, const BF16*,
                                const BF16*, BF16*, float*);
template void attention_forward(Device&, const AttentionShape&, const F16*, const F16*, const F16*,
                                F16*, float*);

}  // namespace tessera::cpu
