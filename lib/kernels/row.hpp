// The phased row shape: per row, some reductions one after another, then one value per column.
//
// A row functor is a plain struct with
//   kReductions                    what each phase computes; an empty array is a plain map
//   Value                          float or double, the type of the partial results
//   columns                        elements of a row
//   term<Phase>(row, i, results)   what element i contributes; results of earlier phases are known
//   finish<Phase>(row, results)    after a phase, by one lane: may replace results[Phase] by a
//   value
//                                  derived from it and write statistics of the row
//   apply(row, i, results)         writes element i of the output
//   apply_wide<Width>(row, i, ..)  optional: the same for elements i to i + Width − 1
//
// The order of every reduction is fixed, whatever runs it: element i belongs to lane i mod
// kRowLanes, a lane adds its elements in ascending order, and lanes are combined by halves (l with
// l + 128, then l + 64, …). A CPU thread keeps all lanes at once, which vectorises; a GPU block of
// 32 to 256 threads gives each thread its share of the lanes. All give the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "base/host_device.hpp"

namespace tessera::kernels {

inline constexpr int kRowLanes = 256;

enum class Reduction { kSum, kMax };
using NoReductions = std::array<Reduction, 0>;

template <Reduction R, typename Value>
TESSERA_HOST_DEVICE constexpr Value identity() {
  return R == Reduction::kSum ? Value(0) : -std::numeric_limits<Value>::infinity();
}

/// The maximum drops NaN; a later sum over the same elements carries it on.
template <Reduction R, typename Value>
TESSERA_HOST_DEVICE inline Value combine(Value a, Value b) {
  if constexpr (R == Reduction::kSum) {
    return a + b;
  } else {
    return a < b ? b : a;
  }
}

/// What one of the kRowLanes lanes contributes to a phase.
template <int Phase, typename Functor>
TESSERA_HOST_DEVICE inline typename Functor::Value row_partial(
    const Functor& f, std::int64_t row, int lane, const typename Functor::Value* results) {
  constexpr Reduction kReduction = Functor::kReductions[Phase];
  auto value = identity<kReduction, typename Functor::Value>();
  for (std::int64_t i = lane; i < f.columns; i += kRowLanes) {
    value = combine<kReduction>(value, f.template term<Phase>(row, i, results));
  }
  return value;
}

/// Combines `width` (a power of two) lanes by halves into lanes[0].
template <Reduction R, typename Value>
TESSERA_HOST_DEVICE inline Value combine_lanes(Value* lanes, int width) {
  for (int half = width / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] = combine<R>(lanes[l], lanes[l + half]);
  }
  return lanes[0];
}

}  // namespace tessera::kernels
