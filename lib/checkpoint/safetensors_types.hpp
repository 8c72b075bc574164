// The element types of the safetensors format.
#pragma once

#include <tessera/dtype.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

struct SafetensorsType {
  std::string_view name;
  std::uint64_t bits;
  std::optional<DType> dtype;  // empty: checked and listed, never read
};

/// In the order of the reference implementation, narrow to wide; its files hold the last type
/// first.
inline constexpr std::array<SafetensorsType, 22> kSafetensorsTypes{{
    {"BOOL", 8, {}},
    {"F4", 4, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"U8", 8, DType::kU8},
    {"I8", 8, DType::kI8},
    {"F8_E5M2", 8, DType::kF8E5M2},
    {"F8_E4M3", 8, DType::kF8E4M3},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"I32", 32, DType::kI32},
    {"U32", 32, {}},
    {"F32", 32, DType::kF32},
    {"C64", 64, {}},
    {"F64", 64, DType::kF64},
    {"I64", 64, DType::kI64},
    {"U64", 64, {}},
}};

}  // namespace tessera
