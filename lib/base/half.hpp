// 16-bit floating-point types as plain bit patterns with conversions from and to FP32, on host and
// device. Rounding is to nearest even; NaN stays NaN (quiet), FP16 overflow becomes infinity.
#pragma once

#include <bit>
#include <cstdint>

#include "base/host_device.hpp"

namespace tessera {

/// bfloat16: the upper half of an FP32.
struct BF16 {
  std::uint16_t bits = 0;

  BF16() = default;
  TESSERA_HOST_DEVICE explicit BF16(float value) : bits(from_float(value)) {}
  TESSERA_HOST_DEVICE explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

  TESSERA_HOST_DEVICE static std::uint16_t from_float(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
    return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};

/// IEEE 754 binary16.
struct F16 {
  std::uint16_t bits = 0;

  F16() = default;
  TESSERA_HOST_DEVICE explicit F16(float value) : bits(from_float(value)) {}
  TESSERA_HOST_DEVICE explicit operator float() const { return to_float(bits); }

  TESSERA_HOST_DEVICE static std::uint16_t from_float(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
    const std::uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
    // 65520 is the smallest value that rounds to 2^16, that is to infinity.
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
      // Subnormal result: adding 0.5 lets the FP32 adder round at bit 2^-24.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<std::uint16_t>(
          sign | (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5f)));
    }
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }

  TESSERA_HOST_DEVICE static float to_float(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    const std::uint32_t exponent = (half >> 10) & 0x1fu;
    const std::uint32_t mantissa = half & 0x3ffu;
    if (exponent == 31) {
      return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    }
    if (exponent == 0) {
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
    }
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  }
};

}  // namespace tessera
