// Little-endian integers and counted strings in byte strings: what files and messages between ranks
// are made of.
#pragma once

#include <tessera/error.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// Appends an unsigned integer, least significant byte first.
template <std::unsigned_integral T>
void put_integer(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
}

/// Appends a length (8 bytes) and the bytes.
inline void put_string(std::string& out, std::string_view text) {
  put_integer<std::uint64_t>(out, text.size());
  out.append(text);
}

/// Takes values off the front of a byte string; raises Error{kData} when it is too short.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <std::unsigned_integral T>
  T integer() {
    const std::string_view bytes = take(sizeof(T));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    }
    return static_cast<T>(value);
  }
  std::string_view string() { return take(integer<std::uint64_t>()); }
  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) throw Error(ErrorCode::kData, "bytes are cut short");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace tessera
