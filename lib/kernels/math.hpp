// Arithmetic that kernels share: conversions, and exp and sigmoid written so that loops over them
// vectorise. The same expressions run on host and device; fmaf is written where a fused step is
// wanted, since contraction is off.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/half.hpp"
#include "base/host_device.hpp"

namespace tessera::kernels {

/// The FP32 value of an element (float, BF16 or F16).
template <typename T>
TESSERA_HOST_DEVICE inline float to_float(T value) {
  return static_cast<float>(value);
}

/// What becomes of a result. A template argument of functors: a loop with a test of a flag in it
/// does not vectorise.
enum class Write {
  kSkip,   ///< the output is null
  kStore,  ///< output = value
  kAdd,    ///< output += value, in FP32, rounded once
};

template <Write W, typename T>
TESSERA_HOST_DEVICE inline void write(T* output, std::int64_t i, float value) {
  if constexpr (W == Write::kStore) output[i] = static_cast<T>(value);
  if constexpr (W == Write::kAdd) output[i] = static_cast<T>(to_float(output[i]) + value);
}

/// e^x within 1.1 ulp; 0 below −87.3 (no subnormal results, which are slow), infinity above 88.73,
/// NaN for NaN. Polynomial from Cephes expf (S. Moshier) after x = n·ln 2 + r, |r| ≤ ln 2 / 2.
TESSERA_HOST_DEVICE inline float exp(float x) {
  constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
  constexpr float kLowest = -87.3f;
  float clamped = x < kLowest ? kLowest : x;  // NaN passes both comparisons
  clamped = clamped > 89.0f ? 89.0f : clamped;
  const float shifted = fmaf(clamped, 1.44269504f, kRound);
  const float n = shifted - kRound;
  const std::uint32_t exponent =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound);
  float r = fmaf(n, -0.693359375f, clamped);
  r = fmaf(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = fmaf(p, r, 1.3981999507e-3f);
  p = fmaf(p, r, 8.3334519073e-3f);
  p = fmaf(p, r, 4.1665795894e-2f);
  p = fmaf(p, r, 1.6666665459e-1f);
  p = fmaf(p, r, 5.0000001201e-1f);
  const float y = fmaf(r * r, p, r) + 1.0f;
  // 2^n in two factors: n may be 128, and infinity comes out of the multiplication.
  const auto half = static_cast<std::uint32_t>(static_cast<std::int32_t>(exponent) >> 1);
  const float first = std::bit_cast<float>((half + 127u) << 23);
  const float second = std::bit_cast<float>((exponent - half + 127u) << 23);
  return x < kLowest ? 0.0f : y * first * second;
}

/// 1 / (1 + e^−x).
TESSERA_HOST_DEVICE inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

/// The argument of the tanh form of GELU, doubled: gelu(x) = x · sigmoid(gelu_argument(x)), because
/// (1 + tanh(u)) / 2 = sigmoid(2u); u = sqrt(2/π) (x + 0.044715 x³).
TESSERA_HOST_DEVICE inline float gelu_argument(float x) {
  return 1.59576912f * x * fmaf(0.044715f * x, x, 1.0f);
}

}  // namespace tessera::kernels
