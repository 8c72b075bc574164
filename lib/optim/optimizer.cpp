#include "optim/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "kernels/operators.hpp"

namespace tessera {

Optimizer::Optimizer(const OptimizerOptions& options) : options_(options) {
  if (options.type == "adamw" || options.type == "adam") {
    state_names_ = {"adam.m", "adam.v"};
  } else if (options.type == "sgd") {
    if (options.momentum != 0.0) state_names_ = {"sgd.momentum"};
  } else {
    fail(ErrorCode::kUsage, "unknown optimizer.type '{}' (adamw, adam or sgd)", options.type);
  }
}

void Optimizer::update(Stream& stream, const Tensor& param, const Tensor& grad,
                       const std::vector<Tensor>& state, double lr, std::int64_t taken,
                       bool weight_decay, float grad_scale) const {
  auto& table = kernels::operators(param.device());
  const auto decay = static_cast<float>(weight_decay ? options_.weight_decay : 0.0);
  if (options_.type == "sgd") {
    table.sgd(stream, param, grad, state.empty() ? Tensor() : state[0], static_cast<float>(lr),
              static_cast<float>(options_.momentum), decay, grad_scale);
    return;
  }
  kernels::AdamCoefficients c{};
  c.lr = static_cast<float>(lr);
  c.beta1 = static_cast<float>(options_.beta1);
  c.beta2 = static_cast<float>(options_.beta2);
  c.eps = static_cast<float>(options_.eps);
  c.weight_decay = decay;
  c.bias_correction1 =
      static_cast<float>(1.0 - std::pow(options_.beta1, static_cast<double>(taken)));
  c.bias_correction2 =
      static_cast<float>(1.0 - std::pow(options_.beta2, static_cast<double>(taken)));
  c.decoupled = options_.type == "adamw";
  table.adam(stream, param, grad, state[0], state[1], c, grad_scale);
}

float clip_coefficient(double norm, double max_norm) {
  if (max_norm <= 0.0) return 1.0f;
  // In this order a NaN stays one: it must not look like a gradient that needs no clipping.
  return static_cast<float>(std::min(max_norm / (norm + 1e-6), 1.0));
}

}  // namespace tessera
