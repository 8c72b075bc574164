#include <algorithm>
#include <optional>

#include "backend/cpu/cpu_operators.hpp"
#include "backend/cpu/dispatch.hpp"
#include "backend/cpu/launch.hpp"
#include "backend/cpu/product.hpp"
#include "kernels/elementwise.hpp"

namespace tessera::cpu {

namespace {

/// c = 0 (+ c): what a product without inner dimension gives.
void clear(const Product& p, Device& device) {
  if (p.accumulate) return;
  dispatch_float(p.result_type, [&]<typename T>() {
    run_elements(device, p.m * p.n, kernels::Fill<T>{static_cast<T*>(p.c), T(0.0f)});
  });
}

template <typename In, typename Out>
void convert(Device& device, const void* input, void* output, std::int64_t count) {
  run_elements(device, count,
               kernels::Convert<In, Out>{static_cast<const In*>(input), static_cast<Out*>(output)});
}

/// Operands that the library lacks are widened and multiplied in FP32; the products are exact, so
/// only the order of the sum differs from a native product.
template <typename T>
void widened_product(const Product& p, Device& device) {
  const Workspace<float> a(device, p.m * p.k);
  const Workspace<float> b(device, p.k * p.n);
  convert<T, float>(device, p.a, a.data(), p.m * p.k);
  convert<T, float>(device, p.b, b.data(), p.k * p.n);
  Product wide = p;
  wide.a = a.data();
  wide.b = b.data();
  wide.operand_type = DType::kF32;
  wide.result_type = DType::kF32;
  if (p.result_type == DType::kF32) return library_product(wide, device);
  const Workspace<float> c(device, p.m * p.n);
  wide.c = c.data();
  if (p.accumulate) convert<T, float>(device, p.c, c.data(), p.m * p.n);
  library_product(wide, device);
  convert<float, T>(device, c.data(), p.c, p.m * p.n);
}

void multiply(const Product& p, Device& device) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return clear(p, device);
  if (library_is_fast_with(p.operand_type)) return library_product(p, device);
  dispatch_float(p.operand_type, [&]<typename T>() { widened_product<T>(p, device); });
}

}  // namespace

void CpuOperators::matmul(Stream& stream, const Tensor& a, bool transpose_a, const Tensor& b,
                          bool transpose_b, const Tensor& c, bool accumulate) {
  TESSERA_CHECK(a.shape().rank() == 2 && b.shape().rank() == 2 && c.shape().rank() == 2,
                "product of {} and {} into {}", a.shape().to_string(), b.shape().to_string(),
                c.shape().to_string());
  Product p;
  p.m = c.size(0);
  p.n = c.size(1);
  p.k = a.size(transpose_a ? 0 : 1);
  TESSERA_CHECK(a.size(transpose_a ? 1 : 0) == p.m && b.size(transpose_b ? 0 : 1) == p.n &&
                    b.size(transpose_b ? 1 : 0) == p.k,
                "product of {}{} and {}{} into {}", a.shape().to_string(), transpose_a ? "ᵀ" : "",
                b.shape().to_string(), transpose_b ? "ᵀ" : "", c.shape().to_string());
  TESSERA_CHECK(a.dtype() == b.dtype() && (c.dtype() == a.dtype() || c.dtype() == DType::kF32),
                "product of {} and {} into {}", to_string(a.dtype()), to_string(b.dtype()),
                to_string(c.dtype()));
  p.transpose_a = transpose_a;
  p.transpose_b = transpose_b;
  p.accumulate = accumulate;
  p.operand_type = a.dtype();
  p.result_type = c.dtype();
  stream.enqueue([=] {
    Product run = p;
    run.a = a.raw_data();
    run.b = b.raw_data();
    run.c = c.raw_data();
    multiply(run, c.device());
  });
}

}  // namespace tessera::cpu
