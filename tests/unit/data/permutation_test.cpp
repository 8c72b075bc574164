// The order of an epoch.
#include "data/permutation.hpp"

#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include <catch2/catch.hpp>

namespace tessera {
namespace {

std::vector<std::uint64_t> order(std::uint64_t seed, std::uint64_t epoch, std::uint64_t count) {
  const EpochPermutation permutation(seed, epoch, count);
  std::vector<std::uint64_t> values;
  for (std::uint64_t position = 0; position < count; ++position) {
    values.push_back(permutation(position));
  }
  return values;
}

TEST_CASE("Each sequence comes once per epoch") {
  std::vector<std::uint64_t> counts(300);
  std::iota(counts.begin(), counts.end(), 1);
  counts.insert(counts.end(), {1023, 1024, 1025, 65536, 65537, 100003});
  for (const std::uint64_t count : counts) {
    const auto values = order(1234, 7, count);
    const std::set<std::uint64_t> distinct(values.begin(), values.end());
    REQUIRE(distinct.size() == count);
    REQUIRE(*distinct.rbegin() == count - 1);
  }
}

TEST_CASE("The order depends on seed, epoch and count") {
  const auto base = order(1, 0, 1000);
  CHECK(base == order(1, 0, 1000));
  CHECK(base != order(2, 0, 1000));
  CHECK(base != order(1, 1, 1000));
  CHECK(base != order(1, 0, 1001));
}

TEST_CASE("The order is mixed") {
  // Places of neighbours in the order are unrelated: their mean distance is near count / 3, and few
  // values stay where they are.
  const std::uint64_t count = 10000;
  const auto values = order(5, 3, count);
  double distance = 0.0;
  int fixed = 0;
  for (std::uint64_t i = 0; i + 1 < count; ++i) {
    distance += std::abs(static_cast<double>(values[i]) - static_cast<double>(values[i + 1]));
    fixed += values[i] == i ? 1 : 0;
  }
  CHECK(distance / static_cast<double>(count) == Approx(count / 3.0).epsilon(0.05));
  CHECK(fixed < 10);
}

TEST_CASE("The order never changes") {
  CHECK(order(1234, 0, 10) == std::vector<std::uint64_t>{0, 2, 7, 1, 5, 6, 4, 3, 9, 8});
  const EpochPermutation large(1234, 2, 1'000'000'007);
  CHECK(large(0) == 473039498);
  CHECK(large(999'999'999) == 720486856);
}

}  // namespace
}  // namespace tessera
