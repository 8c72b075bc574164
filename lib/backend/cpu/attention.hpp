// Causal attention in blocks on the CPU: forward with an online softmax, backward from the stored
// logsumexp (Dao et al., "FlashAttention-2", 2023). The score matrix exists one block at a time.
#pragma once

#include <tessera/device.hpp>

#include <cstdint>

namespace tessera::cpu {

/// q and output [batch, time, heads, size], k and v [batch, time, kv_heads, size], lse
/// [batch, heads, time]; head h reads kv head h / (heads / kv_heads).
struct AttentionShape {
  std::int64_t batch;
  std::int64_t time;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t size;
  float scale;
};

template <typename T>
void attention_forward(Device& device, const AttentionShape& shape, const T* q, const T* k,
                       const T* v, T* output, float* lse);

/// Gradients of one pass; sums over heads that share a kv head run in head order.
template <typename T>
struct AttentionGradients {
  T* q;
  T* k;
  T* v;
  bool accumulate_q;
  bool accumulate_k;
  bool accumulate_v;
};

template <typename T>
void attention_gradients(Device& device, const AttentionShape& shape, const T* grad_output,
                         const T* q, const T* k, const T* v, const T* output, const float* lse,
                         const AttentionGradients<T>& gradients);

}  // namespace tessera::cpu
