// Products of small FP32 blocks in registers, for kernels that keep their operands in cache.
#pragma once

#include <cstdint>

namespace tessera::cpu {

/// Columns of a block are padded to a multiple of kVectorFloats, rows to one of kRowPadding.
inline constexpr int kVectorFloats = 16;
inline constexpr int kRowPadding = 8;

/// A left operand: element (row, i) lies at data[row · row_stride + i · step].
struct LeftBlock {
  const float* data;
  std::int64_t row_stride;
  std::int64_t step;
};

/// c [m, n] (+)= a [m, k] · b [k, n] with m a multiple of kRowPadding and n of kVectorFloats. Each
/// element is one chain of fused multiply-adds in the order of k.
void small_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const LeftBlock& a, const float* b,
                std::int64_t b_stride, float* c, std::int64_t c_stride, bool accumulate);

}  // namespace tessera::cpu
