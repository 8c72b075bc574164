#include "data/permutation.hpp"

#include <algorithm>
#include <bit>

#include "base/check.hpp"
#include "base/philox.hpp"

namespace tessera {

namespace {

constexpr int kRounds = 8;
// Small networks mix badly; 2^4 values a half and more walking cost nothing for so few sequences.
constexpr int kMinHalfBits = 4;

}  // namespace

EpochPermutation::EpochPermutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t count)
    : count_(count) {
  TESSERA_CHECK(count >= 1 && count <= std::uint64_t{1} << 62, "count {}", count);
  const Philox4 key = philox(seed, epoch, hash_name("data order"));
  key_ = key.word[0] | static_cast<std::uint64_t>(key.word[1]) << 32;
  half_bits_ = std::max(kMinHalfBits, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2);
}

std::uint64_t EpochPermutation::operator()(std::uint64_t position) const {
  TESSERA_CHECK(position < count_, "position {} of {}", position, count_);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t value = position;
  do {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = left ^ (philox(key_, right, round).word[0] & mask);
      left = right;
      right = mixed;
    }
    value = left << half_bits_ | right;
  } while (value >= count_);
  return value;
}

}  // namespace tessera
