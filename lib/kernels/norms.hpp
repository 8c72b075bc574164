// RMSNorm and LayerNorm as phased row functors (row.hpp), and the sums over rows of their
// parameters' gradients as column functors (columns.hpp).
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/math.hpp"
#include "kernels/row.hpp"

namespace tessera::kernels {

/// y = x · rstd · w with rstd = 1 / sqrt(mean(x²) + eps).
template <typename T>
struct RmsNorm {
  static constexpr std::array kReductions{Reduction::kSum};
  using Value = float;
  const T* input;
  const T* weight;
  T* output;
  float* rstd;
  std::int64_t columns;
  float eps;
  template <int Phase>
  TESSERA_HOST_DEVICE float term(std::int64_t row, std::int64_t i, const float*) const {
    const float x = to_float(input[row * columns + i]);
    return x * x;
  }
  template <int Phase>
  TESSERA_HOST_DEVICE void finish(std::int64_t row, float* results) const {
    results[0] = 1.0f / sqrtf(results[0] / static_cast<float>(columns) + eps);
    rstd[row] = results[0];
  }
  TESSERA_HOST_DEVICE void apply(std::int64_t row, std::int64_t i, const float* results) const {
    const std::int64_t at = row * columns + i;
    output[at] = static_cast<T>(to_float(input[at]) * results[0] * to_float(weight[i]));
  }
};

/// dx = rstd · (dy·w − x · rstd² · mean(dy·w·x)).
template <typename T, Write W>
struct RmsNormBackward {
  static constexpr std::array kReductions{Reduction::kSum};
  using Value = float;
  const T* grad_output;
  const T* input;
  const T* weight;
  const float* rstd;
  T* grad_input;
  std::int64_t columns;
  template <int Phase>
  TESSERA_HOST_DEVICE float term(std::int64_t row, std::int64_t i, const float*) const {
    const std::int64_t at = row * columns + i;
    return to_float(grad_output[at]) * to_float(weight[i]) * to_float(input[at]);
  }
  template <int Phase>
  TESSERA_HOST_DEVICE void finish(std::int64_t row, float* results) const {
    const float r = rstd[row];
    results[0] = r * r * (results[0] / static_cast<float>(columns));
  }
  TESSERA_HOST_DEVICE void apply(std::int64_t row, std::int64_t i, const float* results) const {
    const std::int64_t at = row * columns + i;
    const float d = to_float(grad_output[at]) * to_float(weight[i]);
    write<W>(grad_input, at, rstd[row] * (d - to_float(input[at]) * results[0]));
  }
};

/// Column functor: dw = Σ_rows dy · x · rstd.
template <typename T, Write W>
struct RmsNormWeightGrad {
  const T* grad_output;
  const T* input;
  const float* rstd;
  float* output;
  std::int64_t columns;
  TESSERA_HOST_DEVICE float term(std::int64_t row, std::int64_t i) const {
    const std::int64_t at = row * columns + i;
    return to_float(grad_output[at]) * to_float(input[at]) * rstd[row];
  }
  TESSERA_HOST_DEVICE void finish(std::int64_t i, float sum) const { write<W>(output, i, sum); }
};

/// y = (x − mean) · rstd · w + b; the variance is taken around the mean.
template <typename T>
struct LayerNorm {
  static constexpr std::array kReductions{Reduction::kSum, Reduction::kSum};
  using Value = float;
  const T* input;
  const T* weight;
  const T* bias;
  T* output;
  float* mean;
  float* rstd;
  std::int64_t columns;
  float eps;
  template <int Phase>
  TESSERA_HOST_DEVICE float term(std::int64_t row, std::int64_t i, const float* results) const {
    const float x = to_float(input[row * columns + i]);
    if constexpr (Phase == 0) return x;
    const float centred = x - results[0];
    return centred * centred;
  }
  template <int Phase>
  TESSERA_HOST_DEVICE void finish(std::int64_t row, float* results) const {
    results[Phase] /= static_cast<float>(columns);
    if constexpr (Phase == 0) {
      mean[row] = results[0];
    } else {
      results[1] = 1.0f / sqrtf(results[1] + eps);
      rstd[row] = results[1];
    }
  }
  TESSERA_HOST_DEVICE void apply(std::int64_t row, std::int64_t i, const float* results) const {
    const std::int64_t at = row * columns + i;
    const float normal = (to_float(input[at]) - results[0]) * results[1];
    output[at] = static_cast<T>(normal * to_float(weight[i]) + to_float(bias[i]));
  }
};

/// With n = (x − mean) · rstd and d = dy · w: dx = rstd · (d − mean(d) − n · mean(d · n)).
template <typename T, Write W>
struct LayerNormBackward {
  static constexpr std::array kReductions{Reduction::kSum, Reduction::kSum};
  using Value = float;
  const T* grad_output;
  const T* input;
  const T* weight;
  const float* mean;
  const float* rstd;
  T* grad_input;
  std::int64_t columns;
  TESSERA_HOST_DEVICE float normal(std::int64_t row, std::int64_t i) const {
    return (to_float(input[row * columns + i]) - mean[row]) * rstd[row];
  }
  template <int Phase>
  TESSERA_HOST_DEVICE float term(std::int64_t row, std::int64_t i, const float*) const {
    const float d = to_float(grad_output[row * columns + i]) * to_float(weight[i]);
    if constexpr (Phase == 0) return d;
    return d * normal(row, i);
  }
  template <int Phase>
  TESSERA_HOST_DEVICE void finish(std::int64_t, float* results) const {
    results[Phase] /= static_cast<float>(columns);
  }
  TESSERA_HOST_DEVICE void apply(std::int64_t row, std::int64_t i, const float* results) const {
    const std::int64_t at = row * columns + i;
    const float d = to_float(grad_output[at]) * to_float(weight[i]);
    write<W>(grad_input, at, rstd[row] * (d - results[0] - normal(row, i) * results[1]));
  }
};

/// Column functor: dw = Σ_rows dy · (x − mean) · rstd. (db is a ColumnSum of dy.)
template <typename T, Write W>
struct LayerNormWeightGrad {
  const T* grad_output;
  const T* input;
  const float* mean;
  const float* rstd;
  float* output;
  std::int64_t columns;
  TESSERA_HOST_DEVICE float term(std::int64_t row, std::int64_t i) const {
    const std::int64_t at = row * columns + i;
    return to_float(grad_output[at]) * ((to_float(input[at]) - mean[row]) * rstd[row]);
  }
  TESSERA_HOST_DEVICE void finish(std::int64_t i, float sum) const { write<W>(output, i, sum); }
};

}  // namespace tessera::kernels
