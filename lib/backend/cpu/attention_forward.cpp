#include <cmath>
#include <limits>

#include "backend/cpu/attention_blocks.hpp"

namespace tessera::cpu {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// Running state of a block of queries.
struct QueryBlock {
  alignas(64) float scores[kBlock * kBlock];
  alignas(64) float maximum[kBlock];
  alignas(64) float total[kBlock];
  alignas(64) float factor[kBlock];  // for what was summed under an earlier maximum
};

/// Raises the maxima of rows [row, row + rows) by their scores in `columns` columns and sets the
/// factors.
void update_maxima(QueryBlock& block, std::int64_t row, std::int64_t rows, std::int64_t columns) {
  alignas(64) float before[kBlock];
  for (std::int64_t r = row; r < row + rows; ++r) {
    before[r] = block.maximum[r];
    block.maximum[r] = std::max(
        before[r], reduce_block<kernels::Reduction::kMax>(block.scores + r * kBlock, columns));
  }
  for (std::int64_t r = row; r < row + rows; ++r) {
    block.factor[r] = kernels::exp(before[r] - block.maximum[r]);
  }
}

/// Scores become e^(score − maximum), and their sums enter the totals.
void exponentiate(QueryBlock& block, std::int64_t row, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = row; r < row + rows; ++r) {
    float* scores = block.scores + r * kBlock;
    const float maximum = block.maximum[r];
    for (std::int64_t j = 0; j < columns; ++j) scores[j] = kernels::exp(scores[j] - maximum);
    block.total[r] =
        block.total[r] * block.factor[r] + reduce_block<kernels::Reduction::kSum>(scores, columns);
  }
}

/// One head: packed q (scaled) [rows, width], transposed k [width, rows], v [rows, width]; writes
/// out [rows, width] and lse [time].
void forward_head(const HeadLayout& head, const float* q, const float* k_transposed, const float* v,
                  float* out, float* lse) {
  QueryBlock block;
  const std::int64_t width = head.width;
  for (std::int64_t first = 0; first < head.time; first += kBlock) {
    const std::int64_t queries = std::min(kBlock, head.time - first);
    float* sums = out + first * width;
    std::fill(block.maximum, block.maximum + kBlock, kMinusInfinity);
    std::fill(block.total, block.total + kBlock, 0.0f);
    for (std::int64_t key = 0; key <= first; key += kBlock) {
      const bool diagonal = key == first;
      const std::int64_t keys = std::min(kBlock, head.time - key);
      for_strips(diagonal, queries, keys,
                 [&](std::int64_t row, std::int64_t rows, std::int64_t columns) {
                   float* scores = block.scores + row * kBlock;
                   float* to = sums + row * width;
                   small_gemm(rows, columns, head.size, {q + (first + row) * width, width, 1},
                              k_transposed + key, head.rows, scores, kBlock, false);
                   for (std::int64_t r = row; diagonal && r < row + rows; ++r) {
                     // Rows of the padding see what the last query sees.
                     for (std::int64_t j = std::min(r, queries - 1) + 1; j < columns; ++j) {
                       block.scores[r * kBlock + j] = kMinusInfinity;
                     }
                   }
                   update_maxima(block, row, rows, columns);
                   exponentiate(block, row, rows, columns);
                   for (std::int64_t r = 0; key > 0 && r < rows; ++r) {
                     const float factor = block.factor[row + r];
                     for (std::int64_t i = 0; i < width; ++i) to[r * width + i] *= factor;
                   }
                   small_gemm(rows, width, std::min(columns, keys), {scores, kBlock, 1},
                              v + key * width, width, to, width, key > 0);
                 });
    }
    for (std::int64_t r = 0; r < queries; ++r) {
      const float inverse = 1.0f / block.total[r];
      for (std::int64_t i = 0; i < width; ++i) sums[r * width + i] *= inverse;
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
