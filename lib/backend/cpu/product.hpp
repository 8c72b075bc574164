// Matrix products on the CPU: what a library does, and the reference.
#pragma once

#include <tessera/device.hpp>
#include <tessera/dtype.hpp>

#include <cstdint>
#include <string_view>

namespace tessera::cpu {

/// c [m, n] = op(a) · op(b) (+ c). All matrices are row-major and dense; a is [m, k], or [k, m]
/// when transposed, b is [k, n], or [n, k] when transposed. Sums in FP32. Every size may be 0.
struct Product {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  DType operand_type = DType::kF32;  ///< of a and b
  DType result_type = DType::kF32;   ///< of c: the operands' or FP32
};

/// Name of the library behind library_product: "onednn", "eigen".
std::string_view product_library();
/// Whether library_product takes operands of this type; FP32 it always takes.
bool library_takes(DType operand_type);
/// Whether such a product is faster here than widening the operands and multiplying in FP32.
/// Depends on the processor alone.
bool library_is_fast_with(DType operand_type);
/// The product by the library, on device.threads() threads. Sizes are at least 1. The result's bits
/// depend on the operands and on the number of threads.
void library_product(const Product& product, Device& device);

/// Rows [first, first + count) of the FP32 product by Eigen, on the calling thread. Sizes are at
/// least 1.
void eigen_product(const Product& product, std::int64_t first, std::int64_t count);

}  // namespace tessera::cpu
