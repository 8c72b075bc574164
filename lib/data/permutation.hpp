// The order of an epoch: a permutation of sequence numbers that needs no memory.
#pragma once

#include <cstdint>

namespace tessera {

/// A pseudo-random permutation of [0, count), a function of (seed, epoch, count) alone.
///
/// A Feistel network permutes the smallest square power of two that holds `count` (and at least
/// 256) values; its round function is Philox. Results outside [0, count) are sent through again
/// ("cycle walking", Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002),
/// which leaves a permutation of [0, count). The order is part of what a resumed run relies on: it
/// never changes.
class EpochPermutation {
 public:
  /// `count` is at least 1 and at most 2^62.
  EpochPermutation(std::uint64_t seed, std::uint64_t epoch, std::uint64_t count);

  /// The sequence at `position`, which is below count().
  std::uint64_t operator()(std::uint64_t position) const;
  std::uint64_t count() const { return count_; }

 private:
  std::uint64_t key_;
  std::uint64_t count_;
  int half_bits_;
};

}  // namespace tessera
