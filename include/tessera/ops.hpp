// Differentiable operators. Each appends one entry to the tape of its first Variable's Context.
// Shapes are row-major; [.., n] means any leading dimensions.
#pragma once

#include <tessera/autograd.hpp>
#include <tessera/export.hpp>

#include <cstdint>

namespace tessera::ops {

/// x [.., in] · wᵀ, w [out, in], plus bias [out] where defined → [.., out].
TESSERA_API Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {});
/// Rows of table [vocab, hidden] at tokens int32 [..] → [.., hidden]. Ids were checked when read.
TESSERA_API Variable embedding(const Tensor& tokens, const Variable& table);
/// x [batch, time, hidden] + table[t] for t in 0..time-1 (learned positions), table [max, hidden].
TESSERA_API Variable add_positions(const Variable& x, const Variable& table);
/// x / sqrt(mean(x²) + eps) · weight over the last dimension.
TESSERA_API Variable rms_norm(const Variable& x, const Variable& weight, float eps);
/// (x − mean) / sqrt(variance + eps) · weight + bias over the last dimension.
TESSERA_API Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias,
                                float eps);
/// Rotary position embedding on x [batch, time, heads, head_dim], pairs (i, i + head_dim/2) as in
/// Llama; position = index along time.
TESSERA_API Variable rope(const Variable& x, double theta);
/// Causal softmax(q·kᵀ/sqrt(head_dim))·v; q [batch, time, heads, d], k and v [batch, time,
/// kv_heads, d]; heads is a multiple of kv_heads → [batch, time, heads, d].
TESSERA_API Variable attention(const Variable& q, const Variable& k, const Variable& v);
/// silu(gate) · up.
TESSERA_API Variable swiglu(const Variable& gate, const Variable& up);
/// Gaussian error linear unit in its tanh form (GPT-2's).
TESSERA_API Variable gelu(const Variable& x);
/// a + b, equal shapes.
TESSERA_API Variable add(const Variable& a, const Variable& b);
/// The same values under another shape.
TESSERA_API Variable reshape(const Variable& x, Shape shape);
/// Zeroes elements with probability p in training and scales the rest by 1/(1−p); x [batch, ..],
/// keyed by (seed, layer, global sequence index of the row, element).
TESSERA_API Variable dropout(const Variable& x, double p, std::uint64_t layer);
/// Sum over unmasked positions of −log softmax(logits)[target]; logits [.., vocab], targets int32
/// [..] with kIgnoreTarget masked → FP32 [1]. Computed in FP32.
TESSERA_API Variable cross_entropy_sum(const Variable& logits, const Tensor& targets);

}  // namespace tessera::ops
