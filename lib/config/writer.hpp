// Prints options: as YAML that reads back to the same values, and as the tables of the
// documentation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/visitor.hpp"

namespace tessera::config {

/// Collects the lines of the YAML text and the value of every key.
class Writer final : public SchemaVisitor {
 public:
  struct Value {
    std::string path;
    std::string text;
  };

  /// The YAML text of what was visited.
  const std::string& yaml() const { return yaml_; }
  const std::vector<Value>& values() const { return values_; }

  std::int64_t on_integer(std::string_view name, std::int64_t value, const IntegerRule& rule,
                          std::string_view meaning) override;
  double on_number(std::string_view name, double value, const NumberRule& rule,
                   std::string_view meaning) override;
  bool on_boolean(std::string_view name, bool value, std::string_view meaning) override;
  std::string on_choice(std::string_view name, const std::string& value, const ChoiceRule& rule,
                        std::string_view meaning) override;
  std::string on_text(std::string_view name, const std::string& value, const TextRule& rule,
                      std::string_view meaning) override;
  std::vector<std::string> on_texts(std::string_view name, const std::vector<std::string>& value,
                                    std::string_view meaning) override;
  std::vector<double> on_numbers(std::string_view name, const std::vector<double>& value,
                                 const NumberRule& rule, std::string_view meaning) override;
  void on_future(std::string_view name) override;
  bool enter(std::string_view name, bool optional, bool present, std::string_view meaning) override;
  std::size_t enter_list(std::string_view name, std::size_t size,
                         std::string_view meaning) override;
  void enter_item(std::size_t index) override;
  void leave() override;

 private:
  void add(std::string_view name, const std::string& text);
  void indent();

  std::string yaml_;
  std::vector<Value> values_;
  std::vector<std::string> prefixes_;
  bool first_of_item_ = false;  // the next line starts with "- "
};

/// The tables of the documentation, one per section.
std::string reference_tables();

}  // namespace tessera::config
