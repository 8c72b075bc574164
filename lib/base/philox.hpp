// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a
// counter-based generator. The same key and counter give the same four words on every backend, so
// nothing random depends on ranks, threads, batch size or resume.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/host_device.hpp"

namespace tessera {

/// Four 32-bit words.
struct Philox4 {
  std::uint32_t word[4];
};

/// The block function: ten rounds over a 128-bit counter with a 64-bit key.
TESSERA_HOST_DEVICE inline Philox4 philox(std::uint64_t key, std::uint64_t counter_low,
                                          std::uint64_t counter_high) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter_low);
  std::uint32_t c1 = static_cast<std::uint32_t>(counter_low >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(counter_high);
  std::uint32_t c3 = static_cast<std::uint32_t>(counter_high >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * c0;
    const std::uint64_t p1 = 0xCD9E8D57ull * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return Philox4{{c0, c1, c2, c3}};
}

/// A uniform in [0, 1) with 24 bits.
TESSERA_HOST_DEVICE inline float uniform_from_bits(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

/// 64-bit FNV-1a of a text, to make a key from a name.
inline std::uint64_t hash_name(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ull;
  }
  return hash;
}

/// One standard normal value for (key, element): Box-Muller in FP64, rounded once.
/// Element i uses block i/2 of the stream, so that any range can be made alone.
inline float normal_at(std::uint64_t key, std::uint64_t element) {
  const Philox4 r = philox(key, element >> 1, 0x6e6f726dull);
  const double u1 = (static_cast<double>(r.word[0]) + 1.0) * 0x1p-32;
  const double u2 = static_cast<double>(r.word[1]) * 0x1p-32;
  const double radius = std::sqrt(-2.0 * std::log(u1));
  const double angle = 6.283185307179586476925286766559 * u2;
  return static_cast<float>((element & 1) == 0 ? radius * std::cos(angle)
                                               : radius * std::sin(angle));
}

}  // namespace tessera
