// Optimizer updates as element functors over flat FP32 tensors.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/math.hpp"
#include "kernels/operators.hpp"

namespace tessera::kernels {

/// AdamW as in semantics: m = β1·m + (1−β1)·g, v = β2·v + (1−β2)·g²,
/// p −= lr·( m/(1−β1^t) / (sqrt(v/(1−β2^t)) + eps) + wd·p ).
struct Adam {
  float* param;
  const float* grad;
  float* m;
  float* v;
  AdamCoefficients c;
  float grad_scale;
  TESSERA_HOST_DEVICE void operator()(std::int64_t i) const {
    const float p = param[i];
    float g = grad[i] * grad_scale;
    if (!c.decoupled) g += c.weight_decay * p;
    const float first = c.beta1 * m[i] + (1.0f - c.beta1) * g;
    const float second = c.beta2 * v[i] + (1.0f - c.beta2) * g * g;
    m[i] = first;
    v[i] = second;
    float update = first / c.bias_correction1 / (sqrtf(second / c.bias_correction2) + c.eps);
    if (c.decoupled) update += c.weight_decay * p;
    param[i] = p - c.lr * update;
  }
};

/// The buffer may be null (no momentum).
struct Sgd {
  float* param;
  const float* grad;
  float* buffer;
  float lr;
  float momentum;
  float weight_decay;
  float grad_scale;
  TESSERA_HOST_DEVICE void operator()(std::int64_t i) const {
    float update = grad[i] * grad_scale + weight_decay * param[i];
    if (buffer != nullptr) {
      update += momentum * buffer[i];
      buffer[i] = update;
    }
    param[i] -= lr * update;
  }
};

}  // namespace tessera::kernels
