// Reductions of a whole tensor to one number, in two stages of fixed order: a row functor (row.hpp)
// over chunks of kChunkElements elements gives one partial result per chunk, and combine_partials
// adds those pairwise.
#pragma once

#include <cstdint>

#include "kernels/math.hpp"
#include "kernels/row.hpp"

namespace tessera::kernels {

inline constexpr std::int64_t kChunkElements = 8192;

/// Σ x in FP32.
struct PlainTerm {
  using Value = float;
  const float* input;
  TESSERA_HOST_DEVICE float operator()(std::int64_t i) const { return input[i]; }
};

/// Σ x² in FP64.
struct SquareTerm {
  using Value = double;
  const float* input;
  TESSERA_HOST_DEVICE double operator()(std::int64_t i) const {
    const double x = input[i];
    return x * x;
  }
};

/// The sum is 0 when all elements are finite and NaN otherwise.
struct NonfiniteTerm {
  using Value = float;
  const float* input;
  TESSERA_HOST_DEVICE float operator()(std::int64_t i) const { return input[i] * 0.0f; }
};

/// Row r is the chunk first + r; `columns` is kChunkElements, or less in a launch of the last one.
template <typename Term>
struct ChunkSum {
  static constexpr std::array kReductions{Reduction::kSum};
  using Value = typename Term::Value;
  Term element;
  Value* partials;
  std::int64_t first;
  std::int64_t columns;
  template <int Phase>
  TESSERA_HOST_DEVICE Value term(std::int64_t row, std::int64_t i, const Value*) const {
    return element((first + row) * kChunkElements + i);
  }
  template <int Phase>
  TESSERA_HOST_DEVICE void finish(std::int64_t row, Value* results) const {
    partials[first + row] = results[0];
  }
  TESSERA_HOST_DEVICE void apply(std::int64_t, std::int64_t, const Value*) const {}
};

/// The sum of `count` partial results: neighbours are added, then neighbours of those, in place.
template <typename Value>
TESSERA_HOST_DEVICE inline Value combine_partials(Value* partials, std::int64_t count) {
  if (count == 0) return Value(0);
  while (count > 1) {
    const std::int64_t pairs = count / 2;
    for (std::int64_t i = 0; i < pairs; ++i) partials[i] = partials[2 * i] + partials[2 * i + 1];
    if (count % 2 != 0) partials[pairs] = partials[count - 1];
    count = pairs + count % 2;
  }
  return partials[0];
}

}  // namespace tessera::kernels
