// Checks of YAML text before and beside the parser, which passes over some mistakes (a byte 4 ends
// its input) and describes others badly (tabs, patterns that start with '*').
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera::config {

/// What is wrong with a text, and where.
struct TextProblem {
  int line = 0;  ///< from 1
  std::string message;
};

/// Control bytes other than tab and line ends, UTF-16, or bytes that are not UTF-8. A UTF-8 byte
/// order mark is fine.
std::optional<TextProblem> find_text_problem(std::string_view text);

/// Whether a quoted scalar starts at `offset` (anchor and tag may come first) and does not end on
/// the same line. A forgotten quote would else swallow the lines up to the next one, or to the end
/// of the file, without a word from the parser.
bool has_open_quote(std::string_view text, std::size_t offset);

/// A message for the parser's complaint `message` at `line`, which looks for the usual causes.
std::string explain_syntax_error(std::string_view text, int line, const std::string& message);

}  // namespace tessera::config
