#include "kernels/math.hpp"

#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

namespace {

namespace kernels = tessera::kernels;

/// |got − want| in units of the last place of `want` as an FP32 value.
double ulps(double got, double want) {
  const auto nearest = static_cast<float>(std::abs(want));
  const double unit = std::nextafter(nearest, std::numeric_limits<float>::infinity()) - nearest;
  return std::abs(got - want) / unit;
}

/// The largest error of `function` against `reference` over [low, high], in units of the last
/// place.
template <typename Function, typename Reference>
double largest_error(float low, float high, const Function& function, const Reference& reference) {
  constexpr int kSteps = 400000;
  double largest = 0.0;
  for (int i = 0; i <= kSteps; ++i) {
    const float x = low + (high - low) * (static_cast<float>(i) / kSteps);
    largest = std::max(largest, ulps(function(x), reference(static_cast<double>(x))));
  }
  return largest;
}

}  // namespace

TEST_CASE("exp is accurate to 1.1 units of the last place") {
  const auto reference = [](double x) { return std::exp(x); };
  CHECK(largest_error(-87.29f, 88.72f, kernels::exp, reference) < 1.1);
  CHECK(largest_error(-1.0f, 1.0f, kernels::exp, reference) < 1.1);
}

TEST_CASE("exp has the limits of exp") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(kernels::exp(0.0f) == 1.0f);
  CHECK(kernels::exp(-0.0f) == 1.0f);
  CHECK(kernels::exp(-infinity) == 0.0f);
  CHECK(kernels::exp(-1e30f) == 0.0f);
  CHECK(kernels::exp(-87.31f) == 0.0f);  // what would be subnormal
  CHECK(kernels::exp(infinity) == infinity);
  CHECK(kernels::exp(89.5f) == infinity);
  CHECK(kernels::exp(1e30f) == infinity);
  CHECK(std::isfinite(kernels::exp(88.72f)));
  CHECK(std::isnan(kernels::exp(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(kernels::exp(-std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("sigmoid is accurate to 3 units of the last place") {
  const auto reference = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  CHECK(largest_error(-80.0f, 80.0f, kernels::sigmoid, reference) < 3.0);
  CHECK(kernels::sigmoid(0.0f) == 0.5f);
  CHECK(kernels::sigmoid(200.0f) == 1.0f);
  CHECK(kernels::sigmoid(-200.0f) == 0.0f);
  CHECK(std::isnan(kernels::sigmoid(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("the GELU argument is twice that of tanh") {
  for (const float x : {-3.0f, -0.7f, 0.0f, 0.2f, 5.0f}) {
    const double want = 2.0 * std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
    CHECK(kernels::gelu_argument(x) == Approx(want).epsilon(1e-6));
  }
}
