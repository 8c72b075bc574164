// Row maps: row functors (row.hpp) without reductions, that move or change whole rows.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/math.hpp"
#include "kernels/row.hpp"

namespace tessera::kernels {

/// data [rows, n] += bias [n].
template <typename T>
struct AddBias {
  static constexpr NoReductions kReductions{};
  using Value = float;
  T* data;
  const T* bias;
  std::int64_t columns;
  TESSERA_HOST_DEVICE void apply(std::int64_t row, std::int64_t i, const float*) const {
    write<Write::kAdd>(data, row * columns + i, to_float(bias[i]));
  }
};

/// output [batch · time, n] = input + table[row mod time].
template <typename T>
struct AddPositions {
  static constexpr NoReductions kReductions{};
  using Value = float;
  const T* input;
  const T* table;
  T* output;
  std::int64_t columns;
  std::int64_t time;
  TESSERA_HOST_DEVICE void apply(std::int64_t row, std::int64_t i, const float*) const {
    const std::int64_t at = row * columns + i;
    output[at] = static_cast<T>(to_float(input[at]) + to_float(table[(row % time) * columns + i]));
  }
};

/// output[row] = input[index[row]], zeros for a negative index.
template <typename T>
struct GatherRows {
  static constexpr NoReductions kReductions{};
  using Value = float;
  const T* input;
  const std::int32_t* index;
  T* output;
  std::int64_t columns;
  TESSERA_HOST_DEVICE void apply(std::int64_t row, std::int64_t i, const float*) const {
    const std::int64_t from = index[row];
    output[row * columns + i] = from < 0 ? T(0.0f) : input[from * columns + i];
  }
};

/// output[s] (+)= Σ_j weight[s, j] · input[slot[s, j]] over the k slots of a row, in j order. A
/// step computes `Width` columns, so that it is the columns that vectorise.
template <typename T, Write W>
struct CombineRows {
  static constexpr NoReductions kReductions{};
  using Value = float;
  const T* input;
  const std::int32_t* slot;
  const float* weight;  // null = 1
  T* output;
  std::int64_t columns;
  int slots;
  template <int Width>
  TESSERA_HOST_DEVICE void apply_wide(std::int64_t row, std::int64_t i, const float*) const {
    float total[Width] = {};
    for (int j = 0; j < slots; ++j) {
      const std::int64_t from = slot[row * slots + j];
      if (from < 0) continue;
      const float w = weight == nullptr ? 1.0f : weight[row * slots + j];
      const T* values = input + from * columns + i;
      for (int l = 0; l < Width; ++l) total[l] += w * to_float(values[l]);
    }
    for (int l = 0; l < Width; ++l) write<W>(output, row * columns + i + l, total[l]);
  }
  TESSERA_HOST_DEVICE void apply(std::int64_t row, std::int64_t i, const float* results) const {
    apply_wide<1>(row, i, results);
  }
};

/// Rows are the routes (s, j): the dot product of the token's gradient with what its expert gave,
/// and the expert's gradient. Either result may be null.
template <typename T>
struct CombineRowsBackward {
  static constexpr std::array kReductions{Reduction::kSum};
  using Value = float;
  const T* grad_output;
  const T* input;
  const std::int32_t* slot;
  const float* weight;  // null = 1
  T* grad_input;
  float* grad_weight;
  std::int64_t columns;
  int slots;
  template <int Phase>
  TESSERA_HOST_DEVICE float term(std::int64_t row, std::int64_t i, const float*) const {
    const T* gradient = grad_output + row / slots * columns;
    const std::int64_t at = slot[row];
    // A test in the loop would keep it from vectorising: without a slot the result is replaced.
    const T* value = at < 0 ? gradient : input + at * columns;
    return to_float(gradient[i]) * to_float(value[i]);
  }
  template <int Phase>
  TESSERA_HOST_DEVICE void finish(std::int64_t row, float* results) const {
    if (grad_weight != nullptr) grad_weight[row] = slot[row] < 0 ? 0.0f : results[0];
  }
  template <int Width>
  TESSERA_HOST_DEVICE void apply_wide(std::int64_t row, std::int64_t i, const float*) const {
    const std::int64_t at = slot[row];
    if (at < 0 || grad_input == nullptr) return;
    const float w = weight == nullptr ? 1.0f : weight[row];
    const T* from = grad_output + row / slots * columns + i;
    T* to = grad_input + at * columns + i;
    for (int l = 0; l < Width; ++l) to[l] = static_cast<T>(w * to_float(from[l]));
  }
  TESSERA_HOST_DEVICE void apply(std::int64_t row, std::int64_t i, const float* results) const {
    apply_wide<1>(row, i, results);
  }
};

/// Row map over positions t: cos and sin [time, d / 2] of t · theta^(−2i/d), all in FP32.
struct RopeTable {
  static constexpr NoReductions kReductions{};
  using Value = float;
  float* cosine;
  float* sine;
  std::int64_t columns;  // d / 2
  float theta;
  TESSERA_HOST_DEVICE void apply(std::int64_t row, std::int64_t i, const float*) const {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(2 * columns);
    const float frequency = 1.0f / powf(theta, exponent);
    const float angle = static_cast<float>(row) * frequency;
    cosine[row * columns + i] = cosf(angle);
    sine[row * columns + i] = sinf(angle);
  }
};

/// Rows are (batch, time, head); turns the pairs (i, i + d/2) of a row.
template <typename T, Write W>
struct Rope {
  static constexpr NoReductions kReductions{};
  using Value = float;
  const T* input;
  const float* cosine;
  const float* sine;
  T* output;
  std::int64_t columns;  // d / 2
  std::int64_t heads;
  std::int64_t time;
  float direction;  // 1, or −1 to turn back
  TESSERA_HOST_DEVICE void apply(std::int64_t row, std::int64_t i, const float*) const {
    const std::int64_t angle = (row / heads) % time * columns + i;
    const std::int64_t at = row * 2 * columns + i;
    const float c = cosine[angle];
    const float s = sine[angle] * direction;
    const float x = to_float(input[at]);
    const float y = to_float(input[at + columns]);
    write<W>(output, at, x * c - y * s);
    write<W>(output, at + columns, y * c + x * s);
  }
};

}  // namespace tessera::kernels
