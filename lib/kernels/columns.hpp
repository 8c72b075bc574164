// The column shape: sums over rows, one per column.
//
// A column functor has columns, term(row, i) and finish(i, sum). The order is fixed: rows are added
// in ascending order within blocks of kColumnRows rows, and the blocks in ascending order. Threads
// divide the columns, never the rows. A column scan has step(row, i) instead, called for ascending
// rows within each column.
#pragma once

#include <cstdint>

#include "kernels/math.hpp"

namespace tessera::kernels {

inline constexpr int kColumnRows = 64;

/// output [n] (+)= Σ_rows input [rows, n].
template <typename T, Write W>
struct ColumnSum {
  const T* input;
  float* output;
  std::int64_t columns;
  TESSERA_HOST_DEVICE float term(std::int64_t row, std::int64_t i) const {
    return to_float(input[row * columns + i]);
  }
  TESSERA_HOST_DEVICE void finish(std::int64_t i, float sum) const { write<W>(output, i, sum); }
};

/// Column scan: table[tokens[row]] += grad_output[row].
template <typename T>
struct EmbeddingBackward {
  const std::int32_t* tokens;
  const T* grad_output;
  float* table;
  std::int64_t columns;
  TESSERA_HOST_DEVICE void step(std::int64_t row, std::int64_t i) const {
    table[tokens[row] * columns + i] += to_float(grad_output[row * columns + i]);
  }
};

}  // namespace tessera::kernels
