// This file is compiled with -ffp-contract=fast: `sum += left * right` below is meant as a fused
// multiply-add of vectors, for which there is no portable name. (Builds without optimisation do not
// fuse, and differ in the last bits.)
#include "backend/cpu/small_gemm.hpp"

#include <cstring>

namespace tessera::cpu {

namespace {

typedef float Vector __attribute__((vector_size(kVectorFloats * sizeof(float))));

#if defined(__AVX512F__)
constexpr int kTileRows = 8;
constexpr int kTileVectors = 2;  // 16 accumulators of the 32 registers
#else
constexpr int kTileRows = 4;
constexpr int kTileVectors = 1;
#endif
static_assert(kRowPadding % kTileRows == 0);

/// c [kTileRows, Vectors · 16] (+)= a [kTileRows, k] · b [k, ..]. The tile's size changes no
/// result.
template <int Vectors>
inline void multiply_tile(std::int64_t k, const LeftBlock& a, const float* b, std::int64_t b_stride,
                          float* c, std::int64_t c_stride, bool accumulate) {
  Vector sum[kTileRows][Vectors] = {};
  if (accumulate) {
    for (int r = 0; r < kTileRows; ++r) {
      for (int v = 0; v < Vectors; ++v) {
        std::memcpy(&sum[r][v], c + r * c_stride + v * kVectorFloats, sizeof(Vector));
      }
    }
  }
  for (std::int64_t i = 0; i < k; ++i) {
    Vector right[Vectors];
    for (int v = 0; v < Vectors; ++v) {
      std::memcpy(&right[v], b + i * b_stride + v * kVectorFloats, sizeof(Vector));
    }
    for (int r = 0; r < kTileRows; ++r) {
      const float left = a.data[r * a.row_stride + i * a.step];
      for (int v = 0; v < Vectors; ++v) sum[r][v] += left * right[v];
    }
  }
  for (int r = 0; r < kTileRows; ++r) {
    for (int v = 0; v < Vectors; ++v) {
      std::memcpy(c + r * c_stride + v * kVectorFloats, &sum[r][v], sizeof(Vector));
    }
  }
}

}  // namespace

void small_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const LeftBlock& a, const float* b,
                std::int64_t b_stride, float* c, std::int64_t c_stride, bool accumulate) {
  constexpr std::int64_t kWide = kTileVectors * kVectorFloats;
  for (std::int64_t row = 0; row < m; row += kTileRows) {
    const LeftBlock left{a.data + row * a.row_stride, a.row_stride, a.step};
    float* to = c + row * c_stride;
    std::int64_t column = 0;
    for (; column + kWide <= n; column += kWide) {
      multiply_tile<kTileVectors>(k, left, b + column, b_stride, to + column, c_stride, accumulate);
    }
    for (; column < n; column += kVectorFloats) {
      multiply_tile<1>(k, left, b + column, b_stride, to + column, c_stride, accumulate);
    }
  }
}

}  // namespace tessera::cpu
