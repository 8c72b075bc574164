#include "comm/reduce.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

namespace ts = tessera;

namespace {

// A rank count of 100 and more is not worth threads; the arithmetic needs none.
template <typename T>
std::vector<T> reduce(ts::DType dtype, ts::ReduceOp op, const std::vector<std::vector<T>>& ranks) {
  std::vector<const std::byte*> sources;
  for (const std::vector<T>& rank : ranks) {
    sources.push_back(reinterpret_cast<const std::byte*>(rank.data()));
  }
  std::vector<T> result(ranks[0].size());
  ts::reduce_tree(dtype, op, sources, reinterpret_cast<std::byte*>(result.data()),
                  static_cast<std::int64_t>(result.size()));
  return result;
}

float tree(std::vector<float> values) {
  while (values.size() > 1) {
    std::vector<float> next;
    for (std::size_t i = 0; i + 1 < values.size(); i += 2)
      next.push_back(values[i] + values[i + 1]);
    if (values.size() % 2 == 1) next.push_back(values.back());
    values = next;
  }
  return values[0];
}

}  // namespace

TEST_CASE("sums follow the tree for every number of ranks") {
  bool all = true;
  for (std::size_t ranks = 1; ranks <= 130; ++ranks) {
    std::vector<std::vector<float>> inputs(ranks, std::vector<float>(3));
    for (std::size_t r = 0; r < ranks; ++r) {
      for (std::size_t i = 0; i < 3; ++i) {
        inputs[r][i] = std::sin(static_cast<float>(r * 31 + i)) * std::pow(10.0f, float(r % 5));
      }
    }
    const std::vector<float> sums = reduce(ts::DType::kF32, ts::ReduceOp::kSum, inputs);
    for (std::size_t i = 0; i < 3; ++i) {
      std::vector<float> column;
      for (const auto& input : inputs) column.push_back(input[i]);
      all = all && sums[i] == tree(column);
    }
  }
  CHECK(all);
}

TEST_CASE("the result may replace any of the sources") {
  for (const std::size_t ranks : {2u, 3u, 6u}) {
    for (std::size_t target = 0; target < ranks; ++target) {
      std::vector<std::vector<float>> inputs(ranks, std::vector<float>(1500));
      for (std::size_t r = 0; r < ranks; ++r) {
        for (std::size_t i = 0; i < 1500; ++i) {
          inputs[r][i] = 0.1f * static_cast<float>(r) + 0.01f * static_cast<float>(i);
        }
      }
      const std::vector<float> wanted = reduce(ts::DType::kF32, ts::ReduceOp::kSum, inputs);
      std::vector<const std::byte*> sources;
      for (const auto& input : inputs) {
        sources.push_back(reinterpret_cast<const std::byte*>(input.data()));
      }
      ts::reduce_tree(ts::DType::kF32, ts::ReduceOp::kSum, sources,
                      reinterpret_cast<std::byte*>(inputs[target].data()), 1500);
      CHECK(inputs[target] == wanted);
    }
  }
}

TEST_CASE("integers wrap, without undefined behaviour") {
  const auto most = std::numeric_limits<std::int32_t>::max();
  CHECK(reduce<std::int32_t>(ts::DType::kI32, ts::ReduceOp::kSum, {{most}, {1}, {0}})[0] ==
        std::numeric_limits<std::int32_t>::min());
  CHECK(reduce<std::int8_t>(ts::DType::kI8, ts::ReduceOp::kSum, {{100}, {100}})[0] == -56);
}

TEST_CASE("extremes of NaN are NaN, wherever it is") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ts::ReduceOp op : {ts::ReduceOp::kMax, ts::ReduceOp::kMin}) {
    const auto result =
        reduce<float>(ts::DType::kF32, op, {{nan, 1, 1, 5}, {1, nan, 1, 7}, {1, 1, nan, 6}});
    CHECK(std::isnan(result[0]));
    CHECK(std::isnan(result[1]));
    CHECK(std::isnan(result[2]));
    CHECK(result[3] == (op == ts::ReduceOp::kMax ? 7.0f : 5.0f));
  }
}

TEST_CASE("FP8 has no reduction") {
  CHECK_FALSE(ts::is_reducible(ts::DType::kF8E4M3));
  CHECK_FALSE(ts::is_reducible(ts::DType::kF8E5M2));
  CHECK(ts::is_reducible(ts::DType::kBF16));
}
