#include <tessera/dtype.hpp>

#include <array>
#include <utility>

#include "base/check.hpp"

namespace tessera {

namespace {

struct DTypeFacts {
  std::string_view name;
  std::size_t bytes;
  bool floating;
};

constexpr std::array<DTypeFacts, 10> kFacts{{{"fp32", 4, true},
                                             {"fp64", 8, true},
                                             {"bf16", 2, true},
                                             {"fp16", 2, true},
                                             {"fp8_e4m3", 1, true},
                                             {"fp8_e5m2", 1, true},
                                             {"int8", 1, false},
                                             {"uint8", 1, false},
                                             {"int32", 4, false},
                                             {"int64", 8, false}}};

const DTypeFacts& facts(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  TESSERA_CHECK(index < kFacts.size(), "unknown dtype {}", index);
  return kFacts[index];
}

}  // namespace

std::size_t size_of(DType dtype) { return facts(dtype).bytes; }
std::string_view to_string(DType dtype) { return facts(dtype).name; }
bool is_floating_point(DType dtype) { return facts(dtype).floating; }

DType dtype_from_string(std::string_view text) {
  for (std::size_t i = 0; i < kFacts.size(); ++i) {
    if (kFacts[i].name == text) return static_cast<DType>(i);
  }
  fail(ErrorCode::kUsage, "unknown element type '{}'", text);
}

}  // namespace tessera
