#include "base/half.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <catch2/catch.hpp>

using tessera::BF16;
using tessera::F16;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The value of an FP16 pattern by its definition.
double f16_value(unsigned bits) {
  const int exponent = static_cast<int>(bits >> 10) & 31;
  const int mantissa = static_cast<int>(bits & 1023u);
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

template <typename Half>
Half from_bits(unsigned bits) {
  Half half;
  half.bits = static_cast<std::uint16_t>(bits);
  return half;
}

/// Patterns that do not survive half → float → half; NaN may become another NaN.
template <typename Half>
int lost_patterns() {
  int lost = 0;
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto value = static_cast<float>(from_bits<Half>(bits));
    const Half back(value);
    if (std::isnan(value) ? !std::isnan(static_cast<float>(back)) : back.bits != bits) ++lost;
  }
  return lost;
}

/// Counts midpoints of neighbouring finite values that are not rounded to the even one, and
/// neighbours of midpoints that are not rounded to the nearer one.
template <typename Half>
int wrong_roundings(unsigned largest) {
  int wrong = 0;
  for (unsigned bits = 0; bits < largest; ++bits) {
    const double low = static_cast<float>(from_bits<Half>(bits));
    const double high = static_cast<float>(from_bits<Half>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact in FP32
    const unsigned even = (bits & 1u) == 0 ? bits : bits + 1;
    if (Half(middle).bits != even) ++wrong;
    if (Half(std::nextafter(middle, kInfinity)).bits != bits + 1) ++wrong;
    if (Half(std::nextafter(middle, -kInfinity)).bits != bits) ++wrong;
    if (Half(-middle).bits != (even | 0x8000u)) ++wrong;
  }
  return wrong;
}

}  // namespace

TEST_CASE("all 65536 patterns of a 16-bit float survive the way to FP32 and back") {
  CHECK(lost_patterns<BF16>() == 0);
  CHECK(lost_patterns<F16>() == 0);
}

TEST_CASE("FP16 patterns have the value of their definition") {
  int wrong = 0;
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const double want = f16_value(bits);
    const double got = static_cast<float>(from_bits<F16>(bits));
    if (std::isnan(want) ? !std::isnan(got) : got != want) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("conversion to 16 bits rounds to nearest even") {
  CHECK(wrong_roundings<F16>(0x7bff) == 0);
  // The midpoints of BF16's subnormals are FP32 subnormals, exact as well.
  CHECK(wrong_roundings<BF16>(0x7f7f) == 0);
}

TEST_CASE("conversion to 16 bits keeps infinity, NaN and overflow apart") {
  CHECK(F16(kInfinity).bits == 0x7c00);
  CHECK(F16(-kInfinity).bits == 0xfc00);
  CHECK(F16(65504.0f).bits == 0x7bff);
  CHECK(F16(65519.99f).bits == 0x7bff);
  CHECK(F16(65520.0f).bits == 0x7c00);
  CHECK(F16(1e30f).bits == 0x7c00);
  CHECK(F16(0x1p-25f).bits == 0);
  CHECK(F16(std::nextafter(0x1p-25f, 1.0f)).bits == 1);
  CHECK(F16(-0.0f).bits == 0x8000);
  CHECK(BF16(kInfinity).bits == 0x7f80);
  CHECK(BF16(std::numeric_limits<float>::max()).bits == 0x7f80);
  CHECK(BF16(-0.0f).bits == 0x8000);
  // A NaN whose payload lies only in the bits that are dropped must not become infinity.
  CHECK(std::isnan(static_cast<float>(BF16(std::bit_cast<float>(0x7f800001u)))));
  CHECK(std::isnan(static_cast<float>(F16(std::bit_cast<float>(0x7f800001u)))));
}
