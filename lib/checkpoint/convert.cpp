#include "checkpoint/convert.hpp"

#include <cstring>

#include "base/check.hpp"
#include "base/half.hpp"

namespace tessera {

namespace {

template <typename From, typename To>
void convert(const std::byte* source, std::byte* destination, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, source + i * sizeof(From), sizeof(From));
    const To converted(static_cast<float>(value));
    std::memcpy(destination + i * sizeof(To), &converted, sizeof(To));
  }
}

template <typename From>
void convert_to(DType to, const std::byte* source, std::byte* destination, std::size_t count) {
  switch (to) {
    case DType::kF32: return convert<From, float>(source, destination, count);
    case DType::kBF16: return convert<From, BF16>(source, destination, count);
    case DType::kF16: return convert<From, F16>(source, destination, count);
    default: break;
  }
  TESSERA_CHECK(false, "no conversion to {}", to_string(to));
}

bool is_convertible(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

}  // namespace

bool can_convert(DType from, DType to) {
  return from == to || (is_convertible(from) && is_convertible(to));
}

void copy_elements(const std::byte* source, DType from, std::byte* destination, DType to,
                   std::size_t count) {
  if (count == 0) return;
  if (from == to) {
    std::memcpy(destination, source, count * size_of(from));
    return;
  }
  switch (from) {
    case DType::kF32: return convert_to<float>(to, source, destination, count);
    case DType::kBF16: return convert_to<BF16>(to, source, destination, count);
    case DType::kF16: return convert_to<F16>(to, source, destination, count);
    default: break;
  }
  TESSERA_CHECK(false, "no conversion from {}", to_string(from));
}

}  // namespace tessera
