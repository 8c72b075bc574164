// Reads the values of a YAML tree into the option structs, with all checks of single keys.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/visitor.hpp"
#include "config/yaml_tree.hpp"

namespace tessera::config {

/// The visitor that reads. A key that is absent keeps its default; a key that is present must have
/// a value of the right type: null counts as absent only where the rule says so. Unknown keys are
/// checked before (KnownKeys). Raises Error{kUsage} with "source:line: key.path" as context.
class Reader final : public SchemaVisitor {
 public:
  /// `root` is a map and outlives the reader.
  Reader(const YamlNode& root, std::string source);

  /// Path of each key that was present → its place.
  const std::map<std::string, std::string>& origins() const { return origins_; }

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
  struct Frame {
    const YamlNode* node;  // null = the section is absent
    std::string path;      // with the point at its end, empty at the top
  };

  const YamlNode::Entry* find(std::string_view name);
  std::string path(std::string_view name) const;
  [[noreturn]] void raise(const Place& place, const std::string& path,
                          const std::string& message) const;
  // The plain scalar's text; anything else is refused as not `expected`.
  const std::string& plain_text(const YamlNode::Entry& entry, const std::string& key,
                                const YamlNode& node, std::string_view expected) const;
  std::string any_text(const Place& place, const std::string& key, const YamlNode& node) const;
  double checked_number(const YamlNode::Entry& entry, const std::string& key, const YamlNode& node,
                        const NumberRule& rule) const;

  std::string source_;
  std::vector<Frame> stack_;
  std::map<std::string, std::string> origins_;
};

/// "a number above 0 and at most 1" for messages and documentation.
std::string describe_rule(const NumberRule& rule);
/// "a, b or c".
std::string join_words(const std::vector<std::string_view>& words);

}  // namespace tessera::config
