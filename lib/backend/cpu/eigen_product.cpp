// GCC 12 warns inside its own AVX-512 header.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define EIGEN_DONT_PARALLELIZE

#include <Eigen/Core>

#include "backend/cpu/product.hpp"
#include "base/check.hpp"

namespace tessera::cpu {

namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstView = Eigen::Map<const Matrix>;
using View = Eigen::Map<Matrix>;

template <typename A, typename B>
void multiply(const A& a, const B& b, View c, bool accumulate, std::int64_t first,
              std::int64_t count) {
  if (accumulate) {
    c.middleRows(first, count).noalias() += a.middleRows(first, count) * b;
  } else {
    c.middleRows(first, count).noalias() = a.middleRows(first, count) * b;
  }
}

}  // namespace

void eigen_product(const Product& p, std::int64_t first, std::int64_t count) {
  TESSERA_CHECK(p.operand_type == DType::kF32 && p.result_type == DType::kF32,
                "Eigen multiplies FP32 only");
  const ConstView a(static_cast<const float*>(p.a), p.transpose_a ? p.k : p.m,
                    p.transpose_a ? p.m : p.k);
  const ConstView b(static_cast<const float*>(p.b), p.transpose_b ? p.n : p.k,
                    p.transpose_b ? p.k : p.n);
  const View c(static_cast<float*>(p.c), p.m, p.n);
  const auto run = [&](const auto& left, const auto& right) {
    multiply(left, right, c, p.accumulate, first, count);
  };
  if (p.transpose_a && p.transpose_b) return run(a.transpose(), b.transpose());
  if (p.transpose_a) return run(a.transpose(), b);
  if (p.transpose_b) return run(a, b.transpose());
  run(a, b);
}

}  // namespace tessera::cpu
