// Products of small FP32 blocks in registers, for kernels that keep their operands in cache.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace tessera::cpu {

/// Columns of a block are padded to a multiple of this, rows to a multiple of kTileRows.
inline constexpr int kVectorFloats = 16;
#if defined(__AVX512F__)
inline constexpr int kTileRows = 8;
inline constexpr int kTileVectors = 2;  // 16 accumulators of the 32 registers
#else
inline constexpr int kTileRows = 4;
inline constexpr int kTileVectors = 1;
#endif
/// Rows are padded to this whatever the tile, so that buffers have one layout.
inline constexpr int kRowPadding = 8;

typedef float Vector __attribute__((vector_size(kVectorFloats * sizeof(float))));

/// A left operand: element (row, i) lies at data[row · row_stride + i · step].
struct LeftBlock {
  const float* data;
  std::int64_t row_stride;
  std::int64_t step;
};

/// c [kTileRows, Vectors · 16] (+)= a [kTileRows, k] · b [k, ..]: for each element one chain of
/// fused steps in the order of i, so that the result does not depend on the tile.
template <int Vectors>
inline void gemm_tile(std::int64_t k, const LeftBlock& a, const float* b, std::int64_t b_stride,
                      float* c, std::int64_t c_stride, bool accumulate) {
  Vector sum[kTileRows][Vectors];
  for (int r = 0; r < kTileRows; ++r) {
    for (int v = 0; v < Vectors; ++v) {
      if (accumulate) {
        std::memcpy(&sum[r][v], c + r * c_stride + v * kVectorFloats, sizeof(Vector));
      } else {
        sum[r][v] = Vector{};
      }
    }
  }
  for (std::int64_t i = 0; i < k; ++i) {
    Vector right[Vectors];
    std::memcpy(right, b + i * b_stride, sizeof(right));
    for (int r = 0; r < kTileRows; ++r) {
      const float left = a.data[r * a.row_stride + i * a.step];
      for (int v = 0; v < Vectors; ++v) {
        for (int l = 0; l < kVectorFloats; ++l) {
          sum[r][v][l] = fmaf(left, right[v][l], sum[r][v][l]);
        }
      }
    }
  }
  for (int r = 0; r < kTileRows; ++r) {
    std::memcpy(c + r * c_stride, sum[r], sizeof(sum[r]));
  }
}

/// c [m, n] (+)= a [m, k] · b [k, n] with m a multiple of kRowPadding and n of kVectorFloats.
inline void small_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const LeftBlock& a,
                       const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride,
                       bool accumulate) {
  constexpr std::int64_t kWide = kTileVectors * kVectorFloats;
  for (std::int64_t row = 0; row < m; row += kTileRows) {
    const LeftBlock left{a.data + row * a.row_stride, a.row_stride, a.step};
    std::int64_t column = 0;
    for (; column + kWide <= n; column += kWide) {
      gemm_tile<kTileVectors>(k, left, b + column, b_stride, c + row * c_stride + column, c_stride,
                              accumulate);
    }
    for (; column < n; column += kVectorFloats) {
      gemm_tile<1>(k, left, b + column, b_stride, c + row * c_stride + column, c_stride,
                   accumulate);
    }
  }
}

}  // namespace tessera::cpu
