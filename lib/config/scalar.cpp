#include "config/scalar.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

namespace tessera::config {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The parts of a decimal number.
struct Decimal {
  bool negative = false;
  std::string_view whole;
  bool has_point = false;
  std::string_view fraction;
  bool has_exponent = false;
  bool exponent_negative = false;
  std::string_view exponent;
};

std::string_view take_digits(std::string_view& text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  const auto count = static_cast<std::size_t>(end - text.begin());
  const std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

bool take_sign(std::string_view& text) {
  if (text.empty() || (text[0] != '-' && text[0] != '+')) return false;
  const bool negative = text[0] == '-';
  text.remove_prefix(1);
  return negative;
}

std::optional<Decimal> split(std::string_view text) {
  Decimal result;
  result.negative = take_sign(text);
  result.whole = take_digits(text);
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    result.has_point = true;
    result.fraction = take_digits(text);
  }
  if (result.whole.empty() && result.fraction.empty()) return std::nullopt;
  if (!text.empty() && (text[0] == 'e' || text[0] == 'E')) {
    text.remove_prefix(1);
    result.has_exponent = true;
    result.exponent_negative = take_sign(text);
    result.exponent = take_digits(text);
    if (result.exponent.empty()) return std::nullopt;
  }
  if (!text.empty()) return std::nullopt;
  return result;
}

bool has_leading_zero(const Decimal& number) {
  return number.whole.size() > 1 && number.whole[0] == '0';
}

// Why a text that is no plain decimal number is refused.
std::string explain(std::string_view text, const char* expected) {
  std::string_view body = text;
  take_sign(body);
  if (body.size() > 2 && body[0] == '0' &&
      std::string_view("xXoObB").find(body[1]) != std::string_view::npos) {
    return fmt::format("{} expected in decimal digits, not '{}'", expected, text);
  }
  if (text.find('_') != std::string_view::npos &&
      std::all_of(body.begin(), body.end(), [](char c) { return is_digit(c) || c == '_'; })) {
    return fmt::format("{} expected without '_', not '{}'", expected, text);
  }
  return fmt::format("{} expected, not '{}'", expected, text);
}

std::string leading_zero(std::string_view text, const char* expected) {
  return fmt::format("{} expected without leading zeros (some readers take '{}' for octal)",
                     expected, text);
}

}  // namespace

Parsed<std::int64_t> parse_integer(std::string_view text) {
  constexpr const char* kExpected = "an integer is";
  const std::optional<Decimal> number = split(text);
  if (!number) return {0, explain(text, kExpected)};
  if (number->has_point || number->exponent_negative) {
    return {0, fmt::format("an integer is expected, not the fraction '{}'", text)};
  }
  if (has_leading_zero(*number)) return {0, leading_zero(text, kExpected)};

  const std::string out_of_range = fmt::format("the integer {} does not fit into 64 bits", text);
  std::string digits(number->whole);
  if (number->has_exponent && digits != "0") {
    int zeros = 0;
    const auto [end, status] = std::from_chars(
        number->exponent.data(), number->exponent.data() + number->exponent.size(), zeros);
    if (status != std::errc() || zeros > 18) return {0, out_of_range};
    digits.append(static_cast<std::size_t>(zeros), '0');
  }
  if (number->negative) digits.insert(0, "-");
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (status != std::errc()) return {0, out_of_range};
  return {value, {}};
}

Parsed<double> parse_number(std::string_view text) {
  constexpr const char* kExpected = "a number is";
  const std::optional<Decimal> number = split(text);
  if (!number) return {0, explain(text, kExpected)};
  if (has_leading_zero(*number)) return {0, leading_zero(text, kExpected)};
  std::string_view digits = text;
  if (digits[0] == '+') digits.remove_prefix(1);
  double value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (status != std::errc() || !std::isfinite(value)) {
    return {0, fmt::format("the number {} is outside the range of a 64-bit float", text)};
  }
  return {value, {}};
}

Parsed<bool> parse_boolean(std::string_view text) {
  if (text == "true") return {true, {}};
  if (text == "false") return {false, {}};
  return {false, fmt::format("true or false is expected, not '{}'", text)};
}

bool looks_like_other_type(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  static constexpr std::array kWords = {"null", "~", "true", "false", "yes",   "no",    "on",
                                        "off",  "y", "n",    ".inf",  "+.inf", "-.inf", ".nan"};
  if (std::find(kWords.begin(), kWords.end(), lower) != kWords.end()) return true;
  if (lower.starts_with("0x") || lower.starts_with("0o")) return true;
  return split(text).has_value();
}

std::string print_number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find('.') != std::string::npos || !std::isfinite(value)) return text;
  const std::size_t exponent = text.find('e');
  text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
  return text;
}

std::string print_text(std::string_view text) {
  const auto plain = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '/' || c == '.' || c == '-' || c == '+';
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain) && text[0] != '-' &&
      text[0] != '+' && !looks_like_other_type(text)) {
    return std::string(text);
  }
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace tessera::config
