// The accepted spellings of numbers and booleans, and how values are printed so that they read
// back.
//   integer   [+-] digits [e digits]           no leading zeros, no fraction: 42, -1, 1e6
//   number    [+-] digits [. digits] [e [+-] digits], or .digits    1e-5, 2E-5, .5, 3
//   boolean   true, false
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::config {

/// The result of reading a scalar: `problem` is empty, or says why the text is refused.
template <typename T>
struct Parsed {
  T value{};
  std::string problem;
};

/// An integer of 64 bits.
Parsed<std::int64_t> parse_integer(std::string_view text);
/// A finite FP64 number.
Parsed<double> parse_number(std::string_view text);
Parsed<bool> parse_boolean(std::string_view text);

/// Whether an unquoted text would be taken for a number, boolean or null by a YAML reader.
bool looks_like_other_type(std::string_view text);

/// The shortest spelling that reads back to the same bits, always with a point ("1.0e-05", "3.0"),
/// which every YAML reader takes for a number.
std::string print_number(double value);
/// The text, in double quotes where YAML needs them.
std::string print_text(std::string_view text);

}  // namespace tessera::config
