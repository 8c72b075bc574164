#include "backend/cpu/product.hpp"

namespace tessera::cpu {

std::string_view product_library() { return "eigen"; }

bool library_takes(DType operand_type) { return operand_type == DType::kF32; }

bool library_is_fast_with(DType operand_type) { return operand_type == DType::kF32; }

void library_product(const Product& product, Device& device) {
  constexpr std::int64_t kGrainRows = 32;
  device.parallel_for(product.m, kGrainRows, [&](std::int64_t begin, std::int64_t end) {
    eigen_product(product, begin, end - begin);
  });
}

}  // namespace tessera::cpu
