#include "config/text_checks.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tessera::config {

namespace {

// Length of the UTF-8 sequence at the start of `text`, 0 where there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const std::size_t length = lead < 0x80                    ? 1
                             : lead >= 0xc2 && lead <= 0xdf ? 2
                             : lead >= 0xe0 && lead <= 0xef ? 3
                             : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and values above U+10FFFF.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) ||
      (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) {
    return 0;
  }
  return length;
}

std::string_view line_of(std::string_view text, int line) {
  for (int i = 1; i < line; ++i) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

bool tab_in_indentation(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t");
  return line.substr(0, first).find('\t') != std::string_view::npos;
}

}  // namespace

std::optional<TextProblem> find_text_problem(std::string_view text) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    return TextProblem{1, "the file is UTF-16; UTF-8 is expected"};
  }
  int line = 1;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '\n') ++line;
    if ((byte < 0x20 && byte != '\n' && byte != '\t' && byte != '\r') || byte == 0x7f) {
      return TextProblem{line, fmt::format("the file holds the control byte 0x{:02x}", byte)};
    }
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) {
      return TextProblem{line, fmt::format("the byte 0x{:02x} is not valid UTF-8", byte)};
    }
    i += length;
  }
  return std::nullopt;
}

bool has_open_quote(std::string_view text, std::size_t offset) {
  std::string_view rest = text.substr(std::min(offset, text.size()));
  rest = rest.substr(0, rest.find('\n'));
  while (!rest.empty() && (rest[0] == '&' || rest[0] == '!')) {
    rest.remove_prefix(std::min(rest.find_first_of(" \t"), rest.size()));
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  }
  if (rest.empty() || (rest[0] != '"' && rest[0] != '\'')) return false;
  const char quote = rest[0];
  for (std::size_t i = 1; i < rest.size(); ++i) {
    if (rest[i] == '\\' && quote == '"') {
      ++i;
    } else if (rest[i] == quote) {
      // Doubled quotes inside single-quoted text end it and start it again.
      return false;
    }
  }
  return true;
}

std::string explain_syntax_error(std::string_view text, int line, const std::string& message) {
  // The parser may notice a tab only on the line after it.
  for (int candidate = std::max(1, line - 1); candidate <= line; ++candidate) {
    if (tab_in_indentation(line_of(text, candidate))) {
      return fmt::format("tab in the indentation of line {}: YAML allows only spaces there",
                         candidate);
    }
  }
  if (message.find("anchor is not defined") != std::string::npos ||
      message.find("found while scanning alias") != std::string::npos ||
      message.find("alias not found") != std::string::npos) {
    return "'*' starts a YAML alias, and this one is not defined: put patterns such as '*.txt' in "
           "quotes";
  }
  return "YAML syntax: " + message;
}

}  // namespace tessera::config
