#include "backend/cpu/attention_blocks.hpp"

namespace tessera::cpu {

namespace {

/// Packed copies of what one head needs, [rows, width] each, or [width, rows] where transposed.
struct HeadBuffers {
  HeadBuffers(Device& device, const HeadLayout& head) : memory(device, 10 * head.elements()) {
    float* next = memory.data();
    for (float** buffer :
         {&q, &k, &v, &k_transposed, &v_transposed, &grad_out, &out, &grad_q, &grad_k, &grad_v}) {
      *buffer = next;
      next += head.elements();
    }
  }
  Workspace<float> memory;
  float* q;
  float* k;
  float* v;
  float* k_transposed;
  float* v_transposed;
  float* grad_out;
  float* out;
  float* grad_q;
  float* grad_k;
  float* grad_v;
};

/// Blocks of probabilities and of their gradients.
struct ScoreBlocks {
  alignas(64) float probability[kBlock * kBlock];
  alignas(64) float gradient[kBlock * kBlock];
};

/// Row r of both blocks from scores and ∂/∂probability, over `columns` columns: p = e^(score −
/// lse), ∂/∂score = p · (∂/∂p − delta); keys from `visible` on are hidden.
void gradient_row(ScoreBlocks& blocks, std::int64_t row, std::int64_t columns, std::int64_t visible,
                  float lse, float delta) {
  float* p = blocks.probability + row * kBlock;
  float* g = blocks.gradient + row * kBlock;
  for (std::int64_t j = 0; j < columns; ++j) {
    p[j] = kernels::exp(p[j] - lse);
    g[j] = p[j] * (g[j] - delta);
  }
  for (std::int64_t j = visible; j < columns; ++j) p[j] = g[j] = 0.0f;
}

/// Adds one head to grad_k and grad_v and writes its grad_q. b.q is scaled, so grad_k is complete;
/// `lse` and `delta` are [rows] with anything in the padding.
void backward_head(const HeadLayout& head, float scale, const HeadBuffers& b, const float* lse,
                   const float* delta) {
  ScoreBlocks blocks;
  const std::int64_t width = head.width;
  std::fill(b.grad_q, b.grad_q + head.elements(), 0.0f);
  for (std::int64_t key = 0; key < head.time; key += kBlock) {
    const std::int64_t keys = std::min(kBlock, head.time - key);
    for (std::int64_t first = key; first < head.time; first += kBlock) {
      const bool diagonal = key == first;
      const std::int64_t queries = std::min(kBlock, head.time - first);
      const std::int64_t padded = round_up(queries, kRowPadding);
      const float* q = b.q + first * width;
      const float* grad_out = b.grad_out + first * width;
      for_strips(
          diagonal, queries, keys, [&](std::int64_t row, std::int64_t rows, std::int64_t columns) {
            float* probability = blocks.probability + row * kBlock;
            float* gradient = blocks.gradient + row * kBlock;
            small_gemm(rows, columns, head.size, {q + row * width, width, 1}, b.k_transposed + key,
                       head.rows, probability, kBlock, false);
            small_gemm(rows, columns, head.size, {grad_out + row * width, width, 1},
                       b.v_transposed + key, head.rows, gradient, kBlock, false);
            for (std::int64_t r = row; r < row + rows; ++r) {
              const std::int64_t seen = diagonal ? std::min(r + 1, keys) : keys;
              gradient_row(blocks, r, columns, r < queries ? seen : 0, lse[first + r],
                           delta[first + r]);
            }
            small_gemm(rows, width, std::min(columns, keys), {gradient, kBlock, 1},
                       b.k + key * width, width, b.grad_q + (first + row) * width, width, true);
          });
      // Queries of the padding are zero in both blocks, so the sums may include them.
      for_strips(diagonal, keys, queries, [&](std::int64_t row, std::int64_t rows, std::int64_t) {
        const std::int64_t from = diagonal ? row : 0;  // earlier queries do not see these keys
        const std::int64_t at = from * kBlock + row;
        float* grad_k = b.grad_k + (key + row) * width;
        float* grad_v = b.grad_v + (key + row) * width;
        small_gemm(rows, width, padded - from, {blocks.probability + at, 1, kBlock},
                   grad_out + from * width, width, grad_v, width, true);
        small_gemm(rows, width, padded - from, {blocks.gradient + at, 1, kBlock}, q + from * width,
                   width, grad_k, width, true);
      });
    }
  }
  for (std::int64_t i = 0; i < head.elements(); ++i) b.grad_q[i] *= scale;
}

/// delta[t] = grad_out[t] · out[t].
void dot_rows(const HeadLayout& head, const HeadBuffers& b, float* delta) {
  for (std::int64_t t = 0; t < head.time; ++t) {
    alignas(64) float lanes[kVectorFloats] = {};
    for (std::int64_t i = 0; i < head.width; i += kVectorFloats) {
      for (std::int64_t l = 0; l < kVectorFloats; ++l) {
        lanes[l] += b.grad_out[t * head.width + i + l] * b.out[t * head.width + i + l];
      }
    }
    delta[t] = kernels::combine_lanes<kernels::Reduction::kSum>(lanes, kVectorFloats);
  }
}

}  // namespace

template <typename T>
void attention_gradients(Device& device, const AttentionShape& shape, const T* grad_output,
                         const T* q, const T* k, const T* v, const T* output, const float* lse,
                         const AttentionGradients<T>& gradients) {
  if (shape.time == 0 || shape.size == 0) return;
  const HeadLayout head(shape);
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::int64_t q_stride = shape.heads * shape.size;
  const std::int64_t kv_stride = shape.kv_heads * shape.size;
  device.parallel_for(shape.batch * shape.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    const HeadBuffers buffers(device, head);
    const Workspace<float> rows(device, 2 * head.rows);
    float* delta = rows.data();
    float* head_lse = delta + head.rows;
    std::fill(delta, delta + 2 * head.rows, 0.0f);
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t batch = unit / shape.kv_heads;
      const std::int64_t kv = unit % shape.kv_heads;
      const std::int64_t kv_offset = batch * shape.time * kv_stride + kv * shape.size;
      pack(head, k + kv_offset, kv_stride, 1.0f, buffers.k);
      pack(head, v + kv_offset, kv_stride, 1.0f, buffers.v);
      pack_transposed(head, buffers.k, buffers.k_transposed);
      pack_transposed(head, buffers.v, buffers.v_transposed);
      std::fill(buffers.grad_k, buffers.grad_k + head.elements(), 0.0f);
      std::fill(buffers.grad_v, buffers.grad_v + head.elements(), 0.0f);
      for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
        const std::int64_t q_offset = batch * shape.time * q_stride + h * shape.size;
        pack(head, q + q_offset, q_stride, shape.scale, buffers.q);
        pack(head, grad_output + q_offset, q_stride, 1.0f, buffers.grad_out);
        pack(head, output + q_offset, q_stride, 1.0f, buffers.out);
        dot_rows(head, buffers, delta);
        const float* from = lse + (batch * shape.heads + h) * shape.time;
        std::copy(from, from + shape.time, head_lse);
        backward_head(head, shape.scale, buffers, head_lse, delta);
        unpack(head, buffers.grad_q, gradients.q + q_offset, q_stride, gradients.accumulate_q);
      }
      unpack(head, buffers.grad_k, gradients.k + kv_offset, kv_stride, gradients.accumulate_k);
      unpack(head, buffers.grad_v, gradients.v + kv_offset, kv_stride, gradients.accumulate_v);
    }
  });
}

template void attention_gradients(Device&, const AttentionShape&, const float*, const float*,
                                  const float*, const float*, const float*, const float*,
                                  const AttentionGradients<float>&);
template void attention_gradients(Device&, const AttentionShape&, const BF16*, const BF16*,
                                  const BF16*, const BF16*, const BF16*, const float*,
                                  const AttentionGradients<BF16>&);
template void attention_gradients(Device&, const AttentionShape&, const F16*, const F16*,
                                  const F16*, const F16*, const F16*, const float*,
                                  const AttentionGradients<F16>&);

}  // namespace tessera::cpu
