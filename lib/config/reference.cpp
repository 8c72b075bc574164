#include <fmt/format.h>

#include "config/reader.hpp"
#include "config/scalar.hpp"
#include "config/schema.hpp"
#include "config/writer.hpp"

namespace tessera::config {

namespace {

std::string code(std::string_view text) { return fmt::format("`{}`", text); }

std::string describe_words(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view word : words) text += (text.empty() ? "" : ", ") + code(word);
  return text;
}

// Writes one table row per key, with the defaults that the visited object holds.
class Documenter final : public SchemaVisitor {
 public:
  std::string take() { return std::move(text_); }

  std::int64_t on_integer(std::string_view name, std::int64_t value, const IntegerRule& rule,
                          std::string_view meaning) override {
    const bool word = value == 0 && !rule.zero_word.empty();
    std::string type = fmt::format("integer ≥ {}", rule.min);
    if (rule.max <= 1'000'000) type = fmt::format("integer {} to {}", rule.min, rule.max);
    if (!rule.zero_word.empty()) type += " or " + code(rule.zero_word);
    // A value outside the range stands for "must be given".
    const bool required = value < rule.min && !word;
    row(name, type,
        required ? "required"
        : word   ? code(rule.zero_word)
                 : code(std::to_string(value)),
        meaning);
    return value;
  }
  double on_number(std::string_view name, double value, const NumberRule& rule,
                   std::string_view meaning) override {
    row(name, rule.only_default ? "number" : describe_rule(rule).substr(2),
        code(print_number(value)), unbuilt(meaning, rule.only_default));
    return value;
  }
  bool on_boolean(std::string_view name, bool value, std::string_view meaning) override {
    row(name, "`true`, `false`", code(value ? "true" : "false"), meaning);
    return value;
  }
  std::string on_choice(std::string_view name, const std::string& value, const ChoiceRule& rule,
                        std::string_view meaning) override {
    row(name, describe_words(rule.words), value.empty() ? "required" : code(value), meaning);
    return value;
  }
  std::string on_text(std::string_view name, const std::string& value, const TextRule& rule,
                      std::string_view meaning) override {
    row(name, "text", code(value.empty() ? rule.empty_word : value), meaning);
    return value;
  }
  std::vector<std::string> on_texts(std::string_view name, const std::vector<std::string>& value,
                                    std::string_view meaning) override {
    row(name, "list of texts", "`[]`", meaning);
    return value;
  }
  std::vector<double> on_numbers(std::string_view name, const std::vector<double>& value,
                                 const NumberRule& rule, std::string_view meaning) override {
    std::string numbers;
    for (const double number : value) {
      numbers += (numbers.empty() ? "" : ", ") + print_number(number);
    }
    row(name, fmt::format("list of {}, each {}", value.size(), describe_rule(rule)),
        fmt::format("`[{}]`", numbers), meaning);
    return value;
  }
  void on_future(std::string_view) override {}
  bool enter(std::string_view name, bool, bool, std::string_view meaning) override {
    const bool is_top = prefixes_.empty();
    if (is_top) {
      text_ += fmt::format("\n### `{}`\n\n{}\n", name, meaning);
      table_ = false;
    }
    prefixes_.push_back(prefix() + std::string(name) + ".");
    return true;
  }
  std::size_t enter_list(std::string_view name, std::size_t, std::string_view meaning) override {
    row(name, "list of maps", "`[]`", meaning);
    prefixes_.push_back(prefix() + std::string(name) + "[]");
    return 1;
  }
  void enter_item(std::size_t) override { prefixes_.push_back(prefix() + "."); }
  void leave() override { prefixes_.pop_back(); }

 private:
  std::string prefix() const { return prefixes_.empty() ? std::string() : prefixes_.back(); }

  static std::string unbuilt(std::string_view meaning, bool only_default) {
    return std::string(meaning) + (only_default ? " Only the default in this version." : "");
  }

  void row(std::string_view name, const std::string& type, const std::string& value,
           std::string_view meaning) {
    if (prefixes_.empty()) {
      text_ += fmt::format("\n### `{}`\n", name);
      table_ = false;
    }
    if (!table_) text_ += "\n| key | type | default | meaning |\n|---|---|---|---|\n";
    table_ = true;
    text_ += fmt::format("| `{}{}` | {} | {} | {} |\n", prefix(), name, type, value, meaning);
  }

  std::string text_;
  std::vector<std::string> prefixes_;
  bool table_ = false;
};

}  // namespace

std::string reference_tables() {
  Document document;
  Documenter documenter;
  describe(document, documenter);
  return documenter.take().substr(1);
}

}  // namespace tessera::config
