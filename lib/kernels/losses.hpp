// Softmax cross-entropy as phased row functors (row.hpp). A negative target masks its row.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/math.hpp"
#include "kernels/row.hpp"

namespace tessera::kernels {

/// losses[row] = masked ? 0 : lse − logits[target]; lse = log Σ e^logit, around the row's maximum.
template <typename T>
struct CrossEntropy {
  static constexpr std::array kReductions{Reduction::kMax, Reduction::kSum};
  using Value = float;
  const T* logits;
  const std::int32_t* targets;
  float* losses;
  float* lse;
  std::int64_t columns;
  template <int Phase>
  TESSERA_HOST_DEVICE float term(std::int64_t row, std::int64_t i, const float* results) const {
    const float x = to_float(logits[row * columns + i]);
    if constexpr (Phase == 0) return x;
    return exp(x - results[0]);
  }
  template <int Phase>
  TESSERA_HOST_DEVICE void finish(std::int64_t row, float* results) const {
    if constexpr (Phase == 1) {
      const float value = results[0] + logf(results[1]);
      lse[row] = value;
      const std::int64_t target = targets[row];
      losses[row] = target < 0 ? 0.0f : value - to_float(logits[row * columns + target]);
    }
  }
  TESSERA_HOST_DEVICE void apply(std::int64_t, std::int64_t, const float*) const {}
};

/// grad = (softmax − onehot) · scale, 0 in masked rows. In place allowed.
template <typename T, Write W>
struct CrossEntropyBackward {
  static constexpr NoReductions kReductions{};
  using Value = float;
  const T* logits;
  const std::int32_t* targets;
  const float* lse;
  const float* scale;
  T* grad_logits;
  std::int64_t columns;
  TESSERA_HOST_DEVICE void apply(std::int64_t row, std::int64_t i, const float*) const {
    const std::int64_t at = row * columns + i;
    const std::int64_t target = targets[row];
    const float p = exp(to_float(logits[at]) - lse[row]);
    const float grad = (p - (i == target ? 1.0f : 0.0f)) * scale[0];
    write<W>(grad_logits, at, target < 0 ? 0.0f : grad);
  }
};

}  // namespace tessera::kernels
