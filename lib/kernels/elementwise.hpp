// Element functors: operator()(i) computes element i. T is float, BF16 or F16.
#pragma once

#include <cstdint>

#include "base/philox.hpp"
#include "kernels/math.hpp"
#include "kernels/row.hpp"

namespace tessera::kernels {

template <typename T>
struct Fill {
  T* output;
  T value;
  TESSERA_HOST_DEVICE void operator()(std::int64_t i) const { output[i] = value; }
};

template <typename In, typename Out>
struct Convert {
  const In* input;
  Out* output;
  TESSERA_HOST_DEVICE void operator()(std::int64_t i) const {
    output[i] = static_cast<Out>(to_float(input[i]));
  }
};

template <typename In, typename Out>
struct AddTo {
  const In* input;
  Out* output;
  TESSERA_HOST_DEVICE void operator()(std::int64_t i) const {
    output[i] = static_cast<Out>(to_float(output[i]) + to_float(input[i]));
  }
};

template <typename T>
struct Add {
  const T* a;
  const T* b;
  T* output;
  TESSERA_HOST_DEVICE void operator()(std::int64_t i) const {
    output[i] = static_cast<T>(to_float(a[i]) + to_float(b[i]));
  }
};

template <typename T>
struct Scale {
  T* data;
  float factor;
  TESSERA_HOST_DEVICE void operator()(std::int64_t i) const {
    data[i] = static_cast<T>(to_float(data[i]) * factor);
  }
};

template <typename T>
struct Swiglu {
  const T* gate;
  const T* up;
  T* output;
  TESSERA_HOST_DEVICE void operator()(std::int64_t i) const {
    const float g = to_float(gate[i]);
    output[i] = static_cast<T>(g * sigmoid(g) * to_float(up[i]));
  }
};

/// With s = sigmoid(g): silu'(g) = s + silu(g)·(1 − s).
template <typename T, Write WriteGate, Write WriteUp>
struct SwigluBackward {
  const T* grad_output;
  const T* gate;
  const T* up;
  T* grad_gate;
  T* grad_up;
  TESSERA_HOST_DEVICE void operator()(std::int64_t i) const {
    const float d = to_float(grad_output[i]);
    const float g = to_float(gate[i]);
    const float u = to_float(up[i]);
    const float s = sigmoid(g);
    const float silu = g * s;
    write<WriteGate>(grad_gate, i, d * u * (s + silu * (1.0f - s)));
    write<WriteUp>(grad_up, i, d * silu);
  }
};

template <typename T>
struct Gelu {
  const T* input;
  T* output;
  TESSERA_HOST_DEVICE void operator()(std::int64_t i) const {
    const float x = to_float(input[i]);
    output[i] = static_cast<T>(x * sigmoid(gelu_argument(x)));
  }
};

template <typename T, Write W>
struct GeluBackward {
  const T* grad_output;
  const T* input;
  T* grad_input;
  TESSERA_HOST_DEVICE void operator()(std::int64_t i) const {
    const float x = to_float(input[i]);
    const float s = sigmoid(gelu_argument(x));
    const float slope = 1.59576912f * (1.0f + 3.0f * 0.044715f * x * x);
    write<W>(grad_input, i, to_float(grad_output[i]) * (s + x * s * (1.0f - s) * slope));
  }
};

/// Row map: element i of row r is kept when the uniform of philox(key, i, sequence_index[r]) is at
/// least p.
template <typename T, Write W>
struct Dropout {
  static constexpr NoReductions kReductions{};
  using Value = float;
  const T* input;
  const std::int64_t* sequence_index;
  T* output;
  std::int64_t columns;
  std::uint64_t key;
  float p;
  float factor;  // 1 / (1 − p)
  TESSERA_HOST_DEVICE void apply(std::int64_t row, std::int64_t i, const float*) const {
    const std::int64_t at = row * columns + i;
    const Philox4 bits =
        philox(key, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(sequence_index[row]));
    const float kept = to_float(input[at]) * factor;
    write<W>(output, at, uniform_from_bits(bits.word[0]) >= p ? kept : 0.0f);
  }
};

}  // namespace tessera::kernels
