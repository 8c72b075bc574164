#include "moe/capacity.hpp"

#include <algorithm>
#include <cmath>

namespace tessera::moe {

std::int64_t expert_capacity(std::int64_t tokens, int experts, int top_k, double factor,
                             std::int64_t min_capacity) {
  const float share = static_cast<float>(static_cast<double>(tokens) / experts);
  const float slots = std::ceil(share * static_cast<float>(top_k * factor));
  const std::int64_t capacity = std::max(static_cast<std::int64_t>(slots), min_capacity);
  return tokens > 0 ? std::max<std::int64_t>(capacity, 1) : capacity;
}

}  // namespace tessera::moe
