// Element types of tensors.
#pragma once

#include <tessera/export.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

/// Element type of a tensor. The integers are stored in files and never change.
enum class DType : std::uint8_t {
  kF32 = 0,
  kF64 = 1,
  kBF16 = 2,
  kF16 = 3,
  kF8E4M3 = 4,  ///< OCP FP8: 4 exponent bits, 3 mantissa bits, largest value 448, no infinity
  kF8E5M2 = 5,  ///< OCP FP8: 5 exponent bits, 2 mantissa bits, largest finite value 57344
  kI8 = 6,
  kU8 = 7,
  kI32 = 8,
  kI64 = 9,
};

/// Bytes per element.
TESSERA_API std::size_t size_of(DType dtype);

/// "fp32", "fp64", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8", "uint8", "int32", "int64".
TESSERA_API std::string_view to_string(DType dtype);

/// The inverse of to_string(). Raises Error{kUsage} for any other text.
TESSERA_API DType dtype_from_string(std::string_view text);

/// True for the floating-point types.
TESSERA_API bool is_floating_point(DType dtype);

}  // namespace tessera
