// Optimizers on flat FP32 pieces: they know neither modules nor ranks.
#pragma once

#include <tessera/options.hpp>
#include <tessera/tensor.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Which formula, its coefficients, and how many state tensors it keeps per parameter.
/// AdamW (Loshchilov & Hutter, "Decoupled weight decay regularization"), Adam with wd·p added to
/// the gradient (PyTorch's Adam), SGD with momentum as PyTorch's.
class Optimizer {
 public:
  /// Raises Error{kUsage} for an unknown type.
  explicit Optimizer(const OptimizerOptions& options);

  /// Prefixes of the state's names in checkpoints: {"adam.m", "adam.v"}, {"sgd.momentum"} or none.
  const std::vector<std::string>& state_names() const { return state_names_; }

  /// Updates `param` in place from grad · grad_scale. `state` holds one tensor per state name, all
  /// of param's size. `taken` counts this step: 1 for the first one.
  void update(Stream& stream, const Tensor& param, const Tensor& grad,
              const std::vector<Tensor>& state, double lr, std::int64_t taken, bool weight_decay,
              float grad_scale) const;

 private:
  OptimizerOptions options_;
  std::vector<std::string> state_names_;
};

/// The factor that clips gradients of this global norm: min(1, max_norm/(norm + 1e-6)); 1 when
/// max_norm is not positive. An infinite norm gives 0, a NaN one NaN; callers skip the step for
/// both.
float clip_coefficient(double norm, double max_norm);

}  // namespace tessera
