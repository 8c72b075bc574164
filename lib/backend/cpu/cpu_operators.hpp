// The operator table of the CPU (contracts in lib/kernels/operators.hpp). Each group of operators
// is defined in the source file of its name: elementwise, rows, norms, losses, reductions,
// products, attention, experts, optimizers.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>

#include "kernels/operators.hpp"

namespace tessera::cpu {

struct RopeAngles;

class CpuOperators final : public kernels::Operators {
 public:
  CpuOperators();
  ~CpuOperators() override;

  std::string_view name() const override { return "cpu"; }
  void fill(Stream& stream, const Tensor& output, float value) override;
  void fill_zero(Stream& stream, const Tensor& output) override;
  void copy(Stream& stream, const Tensor& input, const Tensor& output) override;
  void add_to(Stream& stream, const Tensor& input, const Tensor& output) override;
  void add(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& output) override;
  void scale(Stream& stream, const Tensor& data, float factor) override;
  void swiglu(Stream& stream, const Tensor& gate, const Tensor& up, const Tensor& output) override;
  void swiglu_backward(Stream& stream, const Tensor& grad_output, const Tensor& gate,
                       const Tensor& up, const Tensor& grad_gate, bool accumulate_gate,
                       const Tensor& grad_up, bool accumulate_up) override;
  void gelu(Stream& stream, const Tensor& input, const Tensor& output) override;
  void gelu_backward(Stream& stream, const Tensor& grad_output, const Tensor& input,
                     const Tensor& grad_input, bool accumulate) override;
  void dropout(Stream& stream, const Tensor& input, const Tensor& sequence_index, float p,
               std::uint64_t key, const Tensor& output, bool accumulate) override;
  void add_bias(Stream& stream, const Tensor& data, const Tensor& bias) override;
  void column_sum(Stream& stream, const Tensor& input, const Tensor& output,
                  bool accumulate) override;
  void embedding(Stream& stream, const Tensor& tokens, const Tensor& table,
                 const Tensor& output) override;
  void embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& grad_output,
                          const Tensor& grad_table, bool accumulate) override;
  void add_positions(Stream& stream, const Tensor& input, const Tensor& table,
                     const Tensor& output) override;
  void add_positions_backward(Stream& stream, const Tensor& grad_output, const Tensor& grad_table,
                              bool accumulate) override;
  void rms_norm(Stream& stream, const Tensor& input, const Tensor& weight, float eps,
                const Tensor& output, const Tensor& rstd) override;
  void rms_norm_backward(Stream& stream, const Tensor& grad_output, const Tensor& input,
                         const Tensor& weight, const Tensor& rstd, const Tensor& grad_input,
                         bool accumulate_input, const Tensor& grad_weight,
                         bool accumulate_weight) override;
  void layer_norm(Stream& stream, const Tensor& input, const Tensor& weight, const Tensor& bias,
                  float eps, const Tensor& output, const Tensor& mean, const Tensor& rstd) override;
  void layer_norm_backward(Stream& stream, const Tensor& grad_output, const Tensor& input,
                           const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                           const Tensor& grad_input, bool accumulate_input,
                           const Tensor& grad_weight, bool accumulate_weight,
                           const Tensor& grad_bias, bool accumulate_bias) override;
  void rope(Stream& stream, const Tensor& input, double theta, bool inverse, const Tensor& output,
            bool accumulate) override;
  void cross_entropy(Stream& stream, const Tensor& logits, const Tensor& targets,
                     const Tensor& losses, const Tensor& lse) override;
  void cross_entropy_backward(Stream& stream, const Tensor& logits, const Tensor& targets,
                              const Tensor& lse, const Tensor& scale, const Tensor& grad_logits,
                              bool accumulate) override;
  void sum(Stream& stream, const Tensor& input, const Tensor& output) override;
  void sum_squares(Stream& stream, const Tensor& input, const Tensor& output,
                   bool accumulate) override;
  void find_nonfinite(Stream& stream, const Tensor& input, const Tensor& flag) override;
  void matmul(Stream& stream, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
              const Tensor& c, bool accumulate) override;
  void attention(Stream& stream, const Tensor& q, const Tensor& k, const Tensor& v, float scale,
                 const Tensor& output, const Tensor& lse) override;
  void attention_backward(Stream& stream, const Tensor& grad_output, const Tensor& q,
                          const Tensor& k, const Tensor& v, const Tensor& output, const Tensor& lse,
                          float scale, const Tensor& grad_q, bool accumulate_q,
                          const Tensor& grad_k, bool accumulate_k, const Tensor& grad_v,
                          bool accumulate_v) override;
  void route(Stream& stream, const Tensor& logits, const Tensor& valid,
             const kernels::RouteOptions& options, const kernels::Routing& routing) override;
  void route_backward(Stream& stream, const kernels::Routing& routing,
                      const kernels::RouteOptions& options, const Tensor& grad_weight,
                      const Tensor& prob_scale, float z_scale, const Tensor& grad_logits,
                      bool accumulate) override;
  void gather_rows(Stream& stream, const Tensor& input, const Tensor& index,
                   const Tensor& output) override;
  void combine_rows(Stream& stream, const Tensor& input, const Tensor& slot, const Tensor& weight,
                    const Tensor& output, bool accumulate) override;
  void combine_rows_backward(Stream& stream, const Tensor& grad_output, const Tensor& input,
                             const Tensor& slot, const Tensor& weight, const Tensor& grad_input,
                             const Tensor& grad_weight) override;
  void adam(Stream& stream, const Tensor& param, const Tensor& grad, const Tensor& m,
            const Tensor& v, const kernels::AdamCoefficients& coefficients,
            float grad_scale) override;
  void sgd(Stream& stream, const Tensor& param, const Tensor& grad, const Tensor& buffer, float lr,
           float momentum, float weight_decay, float grad_scale) override;

 private:
  /// Cosines and sines of the last (time, head_dim, theta) asked for.
  std::shared_ptr<const RopeAngles> rope_angles(std::int64_t time, std::int64_t half, double theta);

  std::mutex rope_mutex_;
  std::shared_ptr<const RopeAngles> rope_angles_;
};

}  // namespace tessera::cpu
