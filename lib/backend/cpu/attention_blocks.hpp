// Blocks of one head, copied to FP32 with padding, as attention's small products need them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/attention.hpp"
#include "backend/cpu/launch.hpp"
#include "backend/cpu/small_gemm.hpp"
#include "kernels/math.hpp"

namespace tessera::cpu {

/// Queries and keys of one block.
inline constexpr std::int64_t kBlock = 64;

inline std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

/// Sizes of one head's padded copies.
struct HeadLayout {
  explicit HeadLayout(const AttentionShape& shape)
      : time(shape.time),
        size(shape.size),
        rows(round_up(shape.time, kBlock)),
        width(round_up(shape.size, kVectorFloats)) {}

  std::int64_t time;
  std::int64_t size;
  std::int64_t rows;   // time, padded to whole blocks
  std::int64_t width;  // size, padded to whole vectors
  std::int64_t elements() const { return rows * width; }
};

/// to [rows, width] = from [time, size] · factor with rows `stride` apart; padding is zero.
template <typename T>
void pack(const HeadLayout& head, const T* from, std::int64_t stride, float factor, float* to) {
  for (std::int64_t t = 0; t < head.time; ++t) {
    for (std::int64_t i = 0; i < head.size; ++i) {
      to[t * head.width + i] = kernels::to_float(from[t * stride + i]) * factor;
    }
    for (std::int64_t i = head.size; i < head.width; ++i) to[t * head.width + i] = 0.0f;
  }
  std::fill(to + head.time * head.width, to + head.elements(), 0.0f);
}

/// to [width, rows]: the transpose of a packed copy.
inline void pack_transposed(const HeadLayout& head, const float* packed, float* to) {
  for (std::int64_t t = 0; t < head.rows; t += kVectorFloats) {
    for (std::int64_t i = 0; i < head.width; ++i) {
      for (std::int64_t l = 0; l < kVectorFloats; ++l) {
        to[i * head.rows + t + l] = packed[(t + l) * head.width + i];
      }
    }
  }
}

/// The reverse of pack.
template <kernels::Write W, typename T>
void unpack(const HeadLayout& head, const float* from, T* to, std::int64_t stride) {
  for (std::int64_t t = 0; t < head.time; ++t) {
    for (std::int64_t i = 0; i < head.size; ++i) {
      kernels::write<W>(to + t * stride, i, from[t * head.width + i]);
    }
  }
}
template <typename T>
void unpack(const HeadLayout& head, const float* from, T* to, std::int64_t stride,
            bool accumulate) {
  if (accumulate) {
    unpack<kernels::Write::kAdd>(head, from, to, stride);
  } else {
    unpack<kernels::Write::kStore>(head, from, to, stride);
  }
}

/// Calls body(row, rows, columns) for strips of a block of `queries` × `keys` scores: the rows that
/// are computed together and the padded number of columns that any of them sees. Off the diagonal
/// that is one strip; on it, strips of 16 rows leave out most of what is hidden.
template <typename Body>
void for_strips(bool diagonal, std::int64_t queries, std::int64_t keys, const Body& body) {
  if (!diagonal) return body(0, round_up(queries, kRowPadding), round_up(keys, kVectorFloats));
  for (std::int64_t row = 0; row < queries; row += kVectorFloats) {
    const std::int64_t rows = std::min<std::int64_t>(kVectorFloats, queries - row);
    body(row, round_up(rows, kRowPadding), row + kVectorFloats);
  }
}

/// Sum or maximum of `count` values (a multiple of 16) by fixed lanes.
template <kernels::Reduction R>
inline float reduce_block(const float* values, std::int64_t count) {
  alignas(64) float lanes[kVectorFloats];
  for (int l = 0; l < kVectorFloats; ++l) lanes[l] = values[l];
  for (std::int64_t i = kVectorFloats; i < count; i += kVectorFloats) {
    for (int l = 0; l < kVectorFloats; ++l) {
      lanes[l] = kernels::combine<R>(lanes[l], values[i + l]);
    }
  }
  return kernels::combine_lanes<R>(lanes, kVectorFloats);
}

}  // namespace tessera::cpu
