#include "config/writer.hpp"

#include <fmt/format.h>

#include "config/scalar.hpp"
#include "config/schema.hpp"

namespace tessera::config {

std::int64_t Writer::on_integer(std::string_view name, std::int64_t value, const IntegerRule& rule,
                                std::string_view) {
  add(name,
      value == 0 && !rule.zero_word.empty() ? std::string(rule.zero_word) : std::to_string(value));
  return value;
}

double Writer::on_number(std::string_view name, double value, const NumberRule&, std::string_view) {
  add(name, print_number(value));
  return value;
}

bool Writer::on_boolean(std::string_view name, bool value, std::string_view) {
  add(name, value ? "true" : "false");
  return value;
}

std::string Writer::on_choice(std::string_view name, const std::string& value, const ChoiceRule&,
                              std::string_view) {
  add(name, value);
  return value;
}

std::string Writer::on_text(std::string_view name, const std::string& value, const TextRule& rule,
                            std::string_view) {
  // A text that happens to be the word for an empty one is quoted.
  add(name, value.empty()              ? std::string(rule.empty_word)
            : value == rule.empty_word ? fmt::format("\"{}\"", value)
                                       : print_text(value));
  return value;
}

std::vector<std::string> Writer::on_texts(std::string_view name,
                                          const std::vector<std::string>& value, std::string_view) {
  std::vector<std::string> printed;
  for (const std::string& text : value) printed.push_back(print_text(text));
  add(name, fmt::format("[{}]", fmt::join(printed, ", ")));
  return value;
}

std::vector<double> Writer::on_numbers(std::string_view name, const std::vector<double>& value,
                                       const NumberRule&, std::string_view) {
  std::vector<std::string> printed;
  for (const double number : value) printed.push_back(print_number(number));
  add(name, fmt::format("[{}]", fmt::join(printed, ", ")));
  return value;
}

void Writer::on_future(std::string_view) {}

bool Writer::enter(std::string_view name, bool optional, bool present, std::string_view) {
  if (optional && !present) return false;
  indent();
  yaml_ += fmt::format("{}:\n", name);
  prefixes_.push_back((prefixes_.empty() ? "" : prefixes_.back()) + std::string(name) + ".");
  return true;
}

std::size_t Writer::enter_list(std::string_view name, std::size_t size, std::string_view) {
  if (size == 0) add(name, "[]");
  if (size > 0) {
    indent();
    yaml_ += fmt::format("{}:\n", name);
  }
  prefixes_.push_back(prefixes_.back() + std::string(name));
  return size;
}

void Writer::enter_item(std::size_t index) {
  prefixes_.push_back(fmt::format("{}[{}].", prefixes_.back(), index));
  first_of_item_ = true;
}

void Writer::leave() { prefixes_.pop_back(); }

void Writer::add(std::string_view name, const std::string& text) {
  indent();
  yaml_ += fmt::format("{}: {}\n", name, text);
  values_.push_back({(prefixes_.empty() ? "" : prefixes_.back()) + std::string(name), text});
}

void Writer::indent() {
  std::string space(2 * prefixes_.size(), ' ');
  if (first_of_item_) space.replace(space.size() - 2, 2, "- ");
  first_of_item_ = false;
  yaml_ += space;
}

}  // namespace tessera::config
