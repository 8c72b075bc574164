// One description of every key serves all uses: the functions `describe(object, visitor)` of
// schema.cpp walk an option struct and call the visitor once per key, in order. A visitor reads the
// keys from YAML, prints them, documents them or collects their names. The default of a key is the
// value that the struct's member has when it is default-constructed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

/// Which integers a key takes.
struct IntegerRule {
  std::int64_t min = 0;
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
  /// Word that stands for 0 ("auto"); 0 itself is then spelled only so. Empty = no such word.
  std::string_view zero_word = {};
};

/// Which numbers a key takes.
struct NumberRule {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  bool open_min = false;      ///< min itself is refused
  bool open_max = false;      ///< max itself is refused
  bool only_default = false;  ///< other values belong to a part that is not built yet
};

/// Which words a key takes.
struct ChoiceRule {
  std::vector<std::string_view> words;
  std::vector<std::string_view> future;  ///< words of parts that are not built yet
};

/// How a text key is read.
struct TextRule {
  std::string_view empty_word = {};  ///< word that stands for an empty text ("auto")
  bool null_is_empty = false;        ///< null (~) stands for an empty text
};

/// Called with each key of the schema. The value functions get the current value and return the one
/// to store; a visitor that only looks returns what it got.
class SchemaVisitor {
 public:
  virtual ~SchemaVisitor() = default;

  virtual std::int64_t on_integer(std::string_view name, std::int64_t value,
                                  const IntegerRule& rule, std::string_view meaning) = 0;
  virtual double on_number(std::string_view name, double value, const NumberRule& rule,
                           std::string_view meaning) = 0;
  virtual bool on_boolean(std::string_view name, bool value, std::string_view meaning) = 0;
  virtual std::string on_choice(std::string_view name, const std::string& value,
                                const ChoiceRule& rule, std::string_view meaning) = 0;
  virtual std::string on_text(std::string_view name, const std::string& value, const TextRule& rule,
                              std::string_view meaning) = 0;
  virtual std::vector<std::string> on_texts(std::string_view name,
                                            const std::vector<std::string>& value,
                                            std::string_view meaning) = 0;
  virtual std::vector<double> on_numbers(std::string_view name, const std::vector<double>& value,
                                         const NumberRule& rule, std::string_view meaning) = 0;
  /// A key of a part that is not built yet. Its presence is an error.
  virtual void on_future(std::string_view name) = 0;
  /// A section begins; false = pass over it. `present`: whether the struct has it.
  virtual bool enter(std::string_view name, bool optional, bool present,
                     std::string_view meaning) = 0;
  /// A list of maps begins; returns the number of items to visit.
  virtual std::size_t enter_list(std::string_view name, std::size_t size,
                                 std::string_view meaning) = 0;
  virtual void enter_item(std::size_t index) = 0;
  /// Ends a section, a list or an item.
  virtual void leave() = 0;

  // The calls that descriptions use.

  template <typename T>
  void integer(std::string_view name, T& value, IntegerRule rule, std::string_view meaning) {
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    rule.max =
        static_cast<std::int64_t>(std::min(static_cast<std::uint64_t>(rule.max),
                                           std::min(kMax, static_cast<std::uint64_t>(INT64_MAX))));
    value = static_cast<T>(on_integer(name, static_cast<std::int64_t>(value), rule, meaning));
  }
  void number(std::string_view name, double& value, const NumberRule& rule,
              std::string_view meaning) {
    value = on_number(name, value, rule, meaning);
  }
  void boolean(std::string_view name, bool& value, std::string_view meaning) {
    value = on_boolean(name, value, meaning);
  }
  void choice(std::string_view name, std::string& value, const ChoiceRule& rule,
              std::string_view meaning) {
    value = on_choice(name, value, rule, meaning);
  }
  void text(std::string_view name, std::string& value, const TextRule& rule,
            std::string_view meaning) {
    value = on_text(name, value, rule, meaning);
  }
  void texts(std::string_view name, std::vector<std::string>& value, std::string_view meaning) {
    value = on_texts(name, value, meaning);
  }
  void pair(std::string_view name, double& first, double& second, const NumberRule& rule,
            std::string_view meaning) {
    const std::vector<double> both = on_numbers(name, {first, second}, rule, meaning);
    first = both.at(0);
    second = both.at(1);
  }
  void future(std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) on_future(name);
  }
  template <typename T>
  void section(std::string_view name, T& object, std::string_view meaning) {
    if (!enter(name, false, true, meaning)) return;
    describe(object, *this);
    leave();
  }
  template <typename T>
  void optional_section(std::string_view name, std::optional<T>& object, std::string_view meaning) {
    if (!enter(name, true, object.has_value(), meaning)) return;
    if (!object) object.emplace();
    describe(*object, *this);
    leave();
  }
  template <typename T>
  void list(std::string_view name, std::vector<T>& items, std::string_view meaning) {
    items.resize(enter_list(name, items.size(), meaning));
    for (std::size_t i = 0; i < items.size(); ++i) {
      enter_item(i);
      describe(items[i], *this);
      leave();
    }
    leave();
  }
};

}  // namespace tessera::config
