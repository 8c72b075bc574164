// The list of operators that a backend provides. Everything above (autograd, moe, optim, zero)
// computes through this table; a backend implements it with the functors of this folder and with
// its libraries.
//
// Every call enqueues on `stream` and returns: tensors are handles, their addresses are taken when
// the work runs. Floating-point operands of one call have one dtype (FP32, BF16 or FP16) unless
// said otherwise; arithmetic is FP32; statistics, losses, router values, parameter gradients and
// optimizer state are FP32. An output may alias an input only where said. `accumulate` adds to the
// output. Sums have a fixed order that does not depend on the number of threads.
#pragma once

#include <tessera/export.hpp>
#include <tessera/tensor.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::kernels {

/// Coefficients of one AdamW (or Adam) update; step-dependent parts are worked out by the caller.
struct AdamCoefficients {
  float lr, beta1, beta2, eps, weight_decay;
  float bias_correction1;  ///< 1 − beta1^t
  float bias_correction2;  ///< 1 − beta2^t
  bool decoupled = true;   ///< AdamW; false adds weight_decay · p to the gradient
};

/// How tokens are sent to experts (top-k with queue positions, as DeepSpeed numbers them).
struct RouteOptions {
  int top_k = 2;
  std::int64_t capacity = 0;   ///< routes kept per expert; 0 = all
  bool sample_second = false;  ///< Gumbel noise on the second choice
  bool probs_policy = false;   ///< keep the most probable routes instead of the first ones
  std::uint64_t seed = 0;      ///< key of the noise
  /// int64 [S]: counter of each token's noise, so that it depends neither on ranks nor on batch
  /// sizes; needed when sample_second. Expert e of token s gets −log(−log u), u from
  /// philox(seed, noise_index[s], e).
  Tensor noise_index = {};
};

/// Results of routing S tokens to E experts with k choices.
struct Routing {
  Tensor probs;         ///< FP32 [S, E] softmax of the logits
  Tensor choice;        ///< int32 [S, k] experts, −1 for a padding token
  Tensor position;      ///< int32 [S, k] queue position in the expert; −1 = dropped or padding
  Tensor weight;        ///< FP32 [S, k] combination weights, 0 where dropped
  Tensor counts;        ///< int64 [E] routes per expert before dropping
  Tensor first_counts;  ///< int64 [E] first choices per expert (k choices for k != 2)
  Tensor prob_sums;     ///< FP32 [E] sum over routed tokens of probs
  Tensor z_sum;         ///< FP32 [1] sum over routed tokens of logsumexp(logits)²
  Tensor lse;           ///< FP32 [S] logsumexp of the logits
};

/// The operators. One object per device type, stateless apart from caches.
class Operators {
 public:
  virtual ~Operators() = default;

  /// "cpu", "cuda": for logs.
  virtual std::string_view name() const = 0;

  // --- element-wise -----------------------------------------------------------------------------
  virtual void fill(Stream& stream, const Tensor& output, float value) = 0;  ///< any float dtype
  virtual void fill_zero(Stream& stream, const Tensor& output) = 0;          ///< any dtype
  /// Copies elements, converting between float dtypes (round to nearest even).
  virtual void copy(Stream& stream, const Tensor& input, const Tensor& output) = 0;
  /// output += input; dtypes may differ (sum in FP32).
  virtual void add_to(Stream& stream, const Tensor& input, const Tensor& output) = 0;
  /// output = a + b; output may be a or b.
  virtual void add(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& output) = 0;
  /// data *= factor.
  virtual void scale(Stream& stream, const Tensor& data, float factor) = 0;
  /// output = silu(gate) · up.
  virtual void swiglu(Stream& stream, const Tensor& gate, const Tensor& up,
                      const Tensor& output) = 0;
  /// Writes (accumulates) both gradients; an undefined one is skipped.
  virtual void swiglu_backward(Stream& stream, const Tensor& grad_output, const Tensor& gate,
                               const Tensor& up, const Tensor& grad_gate, bool accumulate_gate,
                               const Tensor& grad_up, bool accumulate_up) = 0;
  /// 0.5 x (1 + tanh(sqrt(2/π) (x + 0.044715 x³))).
  virtual void gelu(Stream& stream, const Tensor& input, const Tensor& output) = 0;
  virtual void gelu_backward(Stream& stream, const Tensor& grad_output, const Tensor& input,
                             const Tensor& grad_input, bool accumulate) = 0;
  /// output[r, i] = keep(r, i) ? input / (1 − p) : 0, where keep compares the uniform of
  /// philox(key, element i, sequence_index[r]) with p; input [rows, n], sequence_index int64
  /// [rows]. Its own backward. May be in place.
  virtual void dropout(Stream& stream, const Tensor& input, const Tensor& sequence_index, float p,
                       std::uint64_t key, const Tensor& output, bool accumulate) = 0;

  // --- rows -------------------------------------------------------------------------------------
  /// input [rows, n] += bias [n], in place.
  virtual void add_bias(Stream& stream, const Tensor& data, const Tensor& bias) = 0;
  /// output FP32 [n] = sum over rows of input [rows, n].
  virtual void column_sum(Stream& stream, const Tensor& input, const Tensor& output,
                          bool accumulate) = 0;
  /// output [rows, n] = table[tokens[row]], table [vocab, n].
  virtual void embedding(Stream& stream, const Tensor& tokens, const Tensor& table,
                         const Tensor& output) = 0;
  /// grad_table FP32 [vocab, n] gets every row's gradient; rows of equal tokens add in row order.
  virtual void embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& grad_output,
                                  const Tensor& grad_table, bool accumulate) = 0;
  /// output [batch, time, n] = input + table[t].
  virtual void add_positions(Stream& stream, const Tensor& input, const Tensor& table,
                             const Tensor& output) = 0;
  /// grad_table FP32 [max, n]: rows t < time get the sum over the batch, the rest zero.
  virtual void add_positions_backward(Stream& stream, const Tensor& grad_output,
                                      const Tensor& grad_table, bool accumulate) = 0;
  /// rstd FP32 [rows] is written for backward.
  virtual void rms_norm(Stream& stream, const Tensor& input, const Tensor& weight, float eps,
                        const Tensor& output, const Tensor& rstd) = 0;
  /// grad_input (undefined = skip) has the input's dtype, grad_weight (undefined = skip) is FP32.
  virtual void rms_norm_backward(Stream& stream, const Tensor& grad_output, const Tensor& input,
                                 const Tensor& weight, const Tensor& rstd, const Tensor& grad_input,
                                 bool accumulate_input, const Tensor& grad_weight,
                                 bool accumulate_weight) = 0;
  virtual void layer_norm(Stream& stream, const Tensor& input, const Tensor& weight,
                          const Tensor& bias, float eps, const Tensor& output, const Tensor& mean,
                          const Tensor& rstd) = 0;
  virtual void layer_norm_backward(Stream& stream, const Tensor& grad_output, const Tensor& input,
                                   const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                                   const Tensor& grad_input, bool accumulate_input,
                                   const Tensor& grad_weight, bool accumulate_weight,
                                   const Tensor& grad_bias, bool accumulate_bias) = 0;
  /// Rotates pairs (i, i + d/2) of x [batch, time, heads, d] by angle t·theta^(−2i/d), cos and sin
  /// in FP32 from FP32 angles; `inverse` turns back (backward). May be in place.
  virtual void rope(Stream& stream, const Tensor& input, double theta, bool inverse,
                    const Tensor& output, bool accumulate) = 0;
  /// losses FP32 [rows] = masked ? 0 : lse − logits[target], lse FP32 [rows]; targets int32 [rows],
  /// negative = masked; logits [rows, vocab].
  virtual void cross_entropy(Stream& stream, const Tensor& logits, const Tensor& targets,
                             const Tensor& losses, const Tensor& lse) = 0;
  /// grad_logits = (softmax − onehot) · scale[0] for unmasked rows, 0 for masked ones; scale FP32
  /// [1]; grad_logits may be logits.
  virtual void cross_entropy_backward(Stream& stream, const Tensor& logits, const Tensor& targets,
                                      const Tensor& lse, const Tensor& scale,
                                      const Tensor& grad_logits, bool accumulate) = 0;
  /// output FP32 [1] = sum of an FP32 tensor (pairwise, fixed order).
  virtual void sum(Stream& stream, const Tensor& input, const Tensor& output) = 0;
  /// output FP64 [1] (+)= sum of squares in FP64 of an FP32 tensor.
  virtual void sum_squares(Stream& stream, const Tensor& input, const Tensor& output,
                           bool accumulate) = 0;
  /// flag int32 [1] is set to 1 when any element of an FP32 tensor is not finite; left alone
  /// otherwise.
  virtual void find_nonfinite(Stream& stream, const Tensor& input, const Tensor& flag) = 0;

  // --- products ---------------------------------------------------------------------------------
  /// c [m, n] = op(a) · op(b) (+ c when accumulate); op transposes where asked. a and b are 2-D of
  /// one dtype; c has their dtype or FP32. Sums in FP32. m, n or k may be 0 (k = 0 gives zeros).
  virtual void matmul(Stream& stream, const Tensor& a, bool transpose_a, const Tensor& b,
                      bool transpose_b, const Tensor& c, bool accumulate) = 0;
  /// Causal attention, never storing the whole score matrix. q [B, T, H, d], k and v [B, T, KV, d],
  /// output like q, lse FP32 [B, H, T] for backward. scale multiplies q·k.
  virtual void attention(Stream& stream, const Tensor& q, const Tensor& k, const Tensor& v,
                         float scale, const Tensor& output, const Tensor& lse) = 0;
  /// Overwrites (or accumulates) grad_q, grad_k, grad_v; each must be defined.
  virtual void attention_backward(Stream& stream, const Tensor& grad_output, const Tensor& q,
                                  const Tensor& k, const Tensor& v, const Tensor& output,
                                  const Tensor& lse, float scale, const Tensor& grad_q,
                                  bool accumulate_q, const Tensor& grad_k, bool accumulate_k,
                                  const Tensor& grad_v, bool accumulate_v) = 0;

  // --- experts ----------------------------------------------------------------------------------
  /// Routes tokens by FP32 logits [S, E] as semantics say (softmax, top-k with lowest index on
  /// ties, positions: all first choices in token order, then all second ones). Tokens with valid
  /// int32 [S] == 0 are padding: never routed or counted (undefined = all valid). The tensors of
  /// `routing` are allocated by the caller.
  virtual void route(Stream& stream, const Tensor& logits, const Tensor& valid,
                     const RouteOptions& options, const Routing& routing) = 0;
  /// grad_logits FP32 [S, E] from grad_weight FP32 [S, k] through renormalisation and softmax, plus
  /// the balance loss: grad of prob sums, prob_scale FP32 [E] (∂/∂probs[s, e] = prob_scale[e] for
  /// every routed token; undefined = none), plus the z-loss: z_scale · ∂(lse²).
  virtual void route_backward(Stream& stream, const Routing& routing, const RouteOptions& options,
                              const Tensor& grad_weight, const Tensor& prob_scale, float z_scale,
                              const Tensor& grad_logits, bool accumulate) = 0;
  /// output [R, n] = input[index[r]] for index int32 [R]; index −1 gives a row of zeros.
  virtual void gather_rows(Stream& stream, const Tensor& input, const Tensor& index,
                           const Tensor& output) = 0;
  /// output [S, n] (+)= Σ_j weight[s, j] · input[slot[s, j]] for slot int32 [S, k] (−1 = nothing),
  /// weight FP32 [S, k] (undefined = 1), summed in FP32 in j order, cast once.
  virtual void combine_rows(Stream& stream, const Tensor& input, const Tensor& slot,
                            const Tensor& weight, const Tensor& output, bool accumulate) = 0;
  /// grad_input[slot[s, j]] = weight[s, j] · grad_output[s] (rows without a slot stay as they are;
  /// clear first), grad_weight FP32 [S, k] = grad_output[s] · input[slot[s, j]] (0 for −1).
  virtual void combine_rows_backward(Stream& stream, const Tensor& grad_output, const Tensor& input,
                                     const Tensor& slot, const Tensor& weight,
                                     const Tensor& grad_input, const Tensor& grad_weight) = 0;

  // --- optimizers (FP32, flat) ------------------------------------------------------------------
  /// p, m, v are updated from grad · grad_scale.
  virtual void adam(Stream& stream, const Tensor& param, const Tensor& grad, const Tensor& m,
                    const Tensor& v, const AdamCoefficients& coefficients, float grad_scale) = 0;
  /// buffer = momentum · buffer + (grad · grad_scale + weight_decay · p); p −= lr · buffer. Without
  /// momentum the buffer is undefined.
  virtual void sgd(Stream& stream, const Tensor& param, const Tensor& grad, const Tensor& buffer,
                   float lr, float momentum, float weight_decay, float grad_scale) = 0;
};

/// The operators of a device's type. Raises Error{kUsage} for a backend that is not built in.
TESSERA_API Operators& operators(const Device& device);

}  // namespace tessera::kernels
