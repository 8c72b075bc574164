// From runtime element types to template arguments, and the checks that operators share.
#pragma once

#include <tessera/tensor.hpp>

#include <utility>

#include "base/check.hpp"
#include "base/half.hpp"
#include "kernels/math.hpp"

namespace tessera::cpu {

/// Calls body.operator()<T>() with the element type of `dtype`: float, BF16 or F16.
template <typename Body>
void dispatch_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF32: return body.template operator()<float>();
    case DType::kBF16: return body.template operator()<BF16>();
    case DType::kF16: return body.template operator()<F16>();
    default:
      fail(ErrorCode::kUsage, "an operator for fp32, bf16 and fp16 was given {}", to_string(dtype));
  }
}

/// Calls body.operator()<W>() with kAdd or kStore.
template <typename Body>
void dispatch_write(bool accumulate, Body&& body) {
  if (accumulate) return body.template operator()<kernels::Write::kAdd>();
  body.template operator()<kernels::Write::kStore>();
}

/// As dispatch_write, with kSkip for an undefined output.
template <typename Body>
void dispatch_write(const Tensor& output, bool accumulate, Body&& body) {
  if (!output.defined()) return body.template operator()<kernels::Write::kSkip>();
  dispatch_write(accumulate, body);
}

/// Both of the above: calls body.operator()<T, W>().
template <typename Body>
void dispatch(DType dtype, bool accumulate, Body&& body) {
  dispatch_float(dtype, [&]<typename T>() {
    dispatch_write(accumulate, [&]<kernels::Write W>() { body.template operator()<T, W>(); });
  });
}

/// The address of a tensor's elements, null for an undefined one.
template <typename T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

/// Checks that `tensor` has `elements` elements of `dtype`.
inline void check_tensor(const Tensor& tensor, std::int64_t elements, DType dtype,
                         const char* name) {
  TESSERA_CHECK(tensor.defined(), "{} is undefined", name);
  TESSERA_CHECK(tensor.elements() == elements && tensor.dtype() == dtype,
                "{} is {} of {}, expected {} elements of {}", name, tensor.shape().to_string(),
                to_string(tensor.dtype()), elements, to_string(dtype));
}

/// As check_tensor, passing undefined tensors.
inline void check_optional(const Tensor& tensor, std::int64_t elements, DType dtype,
                           const char* name) {
  if (tensor.defined()) check_tensor(tensor, elements, dtype, name);
}

/// Rows of a tensor seen as a matrix of `columns` columns.
inline std::int64_t rows_of(const Tensor& tensor, std::int64_t columns) {
  if (columns == 0) return 0;
  TESSERA_CHECK(tensor.elements() % columns == 0, "{} has no rows of {}",
                tensor.shape().to_string(), columns);
  return tensor.elements() / columns;
}

}  // namespace tessera::cpu
