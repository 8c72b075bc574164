#include "moe/capacity.hpp"

#include <vector>

#include <catch2/catch.hpp>

using tessera::moe::expert_capacity;

TEST_CASE("Capacity is the expert's share times k times the factor, rounded up") {
  CHECK(expert_capacity(6, 4, 2, 1.0, 0) == 3);
  CHECK(expert_capacity(6, 4, 2, 0.5, 0) == 2);
  CHECK(expert_capacity(8, 4, 2, 1.25, 0) == 5);
  CHECK(expert_capacity(8, 4, 1, 1.0, 0) == 2);
  CHECK(expert_capacity(9, 4, 3, 1.0, 0) == 7);  // 6.75
}

TEST_CASE("Capacity by hand: few tokens, extreme factors, a minimum") {
  CHECK(expert_capacity(5, 4, 1, 1.0, 0) == 2);      // 1.25
  CHECK(expert_capacity(5, 4, 2, 1.0, 0) == 3);      // 2.5
  CHECK(expert_capacity(3, 4, 2, 1.0, 4) == 4);      // 1.5, raised to the minimum
  CHECK(expert_capacity(5, 4, 2, 0.01, 0) == 1);     // 0.025
  CHECK(expert_capacity(5, 4, 2, 100.0, 0) == 250);  // more than there are tokens
  CHECK(expert_capacity(0, 4, 2, 1.0, 0) == 0);
  CHECK(expert_capacity(0, 4, 2, 1.0, 4) == 4);
  CHECK(expert_capacity(1, 8, 2, 1e-9, 0) == 1);
}

TEST_CASE("Capacity is computed in FP32, where FP64 would differ") {
  // 35/3 · 1.2 = 14 in FP64, 14.000001 in FP32.
  CHECK(expert_capacity(35, 3, 2, 0.6, 0) == 15);
  // 10/3 · 2.1 = 7.000000000000001 in FP64, 7 in FP32.
  CHECK(expert_capacity(10, 3, 2, 1.05, 0) == 7);
}
