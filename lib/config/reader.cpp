#include "config/reader.hpp"

#include <tessera/error.hpp>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "config/scalar.hpp"

namespace tessera::config {

namespace {

constexpr std::int64_t kLargestNamed = 1'000'000;

}  // namespace

Reader::Reader(const YamlNode& root, std::string source) : source_(std::move(source)) {
  stack_.push_back({&root, ""});
}

std::int64_t Reader::on_integer(std::string_view name, std::int64_t value, const IntegerRule& rule,
                                std::string_view) {
  const YamlNode::Entry* entry = find(name);
  if (entry == nullptr) return value;
  const std::string key = path(name);
  const std::string& text = plain_text(
      *entry, key, *entry->value,
      rule.zero_word.empty() ? "an integer" : fmt::format("an integer or '{}'", rule.zero_word));
  if (!rule.zero_word.empty() && text == rule.zero_word) return 0;
  const Parsed<std::int64_t> parsed = parse_integer(text);
  const std::string word = rule.zero_word.empty() ? "" : fmt::format(" or '{}'", rule.zero_word);
  if (!parsed.problem.empty()) raise(entry->place, key, parsed.problem);
  if (parsed.value < rule.min || parsed.value > rule.max) {
    // Limits that only come from the member's size are not worth a mention.
    const std::string range = rule.max <= kLargestNamed
                                  ? fmt::format("from {} to {}", rule.min, rule.max)
                              : parsed.value < rule.min ? fmt::format("of at least {}", rule.min)
                                                        : fmt::format("of at most {}", rule.max);
    raise(entry->place, key, fmt::format("an integer {}{} is expected, not {}", range, word, text));
  }
  return parsed.value;
}

double Reader::on_number(std::string_view name, double value, const NumberRule& rule,
                         std::string_view) {
  const YamlNode::Entry* entry = find(name);
  if (entry == nullptr) return value;
  const std::string key = path(name);
  const double number = checked_number(*entry, key, *entry->value, rule);
  if (rule.only_default && number != value) {
    raise(entry->place, key,
          fmt::format("'{}: {}' is not supported in this version; only {} is", key,
                      print_number(number), print_number(value)));
  }
  return number;
}

bool Reader::on_boolean(std::string_view name, bool value, std::string_view) {
  const YamlNode::Entry* entry = find(name);
  if (entry == nullptr) return value;
  const std::string key = path(name);
  const Parsed<bool> parsed =
      parse_boolean(plain_text(*entry, key, *entry->value, "true or false"));
  if (!parsed.problem.empty()) raise(entry->place, key, parsed.problem);
  return parsed.value;
}

std::string Reader::on_choice(std::string_view name, const std::string& value,
                              const ChoiceRule& rule, std::string_view) {
  const YamlNode::Entry* entry = find(name);
  if (entry == nullptr) return value;
  const std::string key = path(name);
  const std::string expected = join_words(rule.words);
  if (entry->value->kind != YamlNode::Kind::kScalar) {
    raise(entry->place, key,
          fmt::format("{} is expected, not {}", expected, entry->value->describe()));
  }
  const std::string& text = entry->value->text;
  if (std::find(rule.words.begin(), rule.words.end(), text) != rule.words.end()) return text;
  if (std::find(rule.future.begin(), rule.future.end(), text) != rule.future.end()) {
    raise(entry->place, key,
          fmt::format("'{}: {}' is not supported in this version; supported: {}", key, text,
                      expected));
  }
  raise(entry->place, key, fmt::format("{} is expected, not '{}'", expected, text));
}

std::string Reader::on_text(std::string_view name, const std::string& value, const TextRule& rule,
                            std::string_view) {
  const YamlNode::Entry* entry = find(name);
  if (entry == nullptr) return value;
  const std::string key = path(name);
  if (rule.null_is_empty && entry->value->kind == YamlNode::Kind::kNull) return {};
  std::string text = any_text(entry->place, key, *entry->value);
  if (text.empty()) raise(entry->place, key, "a text is expected, not an empty one");
  const bool is_word = !entry->value->quoted && text == rule.empty_word;
  return is_word && !rule.null_is_empty ? std::string() : text;
}

std::vector<std::string> Reader::on_texts(std::string_view name,
                                          const std::vector<std::string>& value, std::string_view) {
  const YamlNode::Entry* entry = find(name);
  if (entry == nullptr) return value;
  const std::string key = path(name);
  if (entry->value->kind != YamlNode::Kind::kList) {
    raise(entry->place, key,
          fmt::format("a list of texts is expected, such as [a.txt, b.txt], not {}",
                      entry->value->describe()));
  }
  std::vector<std::string> texts;
  for (const YamlPointer& item : entry->value->items) {
    const std::string item_key = fmt::format("{}[{}]", key, texts.size());
    std::string text = any_text(item->place, item_key, *item);
    if (text.empty()) raise(item->place, item_key, "a text is expected, not an empty one");
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<double> Reader::on_numbers(std::string_view name, const std::vector<double>& value,
                                       const NumberRule& rule, std::string_view) {
  const YamlNode::Entry* entry = find(name);
  if (entry == nullptr) return value;
  const std::string key = path(name);
  const YamlNode& node = *entry->value;
  if (node.kind != YamlNode::Kind::kList || node.items.size() != value.size()) {
    const std::string given = node.kind == YamlNode::Kind::kList
                                  ? fmt::format("{} values", node.items.size())
                                  : node.describe();
    raise(entry->place, key,
          fmt::format("a list of {} numbers is expected, not {}", value.size(), given));
  }
  std::vector<double> numbers;
  for (const YamlPointer& item : node.items) {
    numbers.push_back(
        checked_number(*entry, fmt::format("{}[{}]", key, numbers.size()), *item, rule));
  }
  return numbers;
}

void Reader::on_future(std::string_view) {}

bool Reader::enter(std::string_view name, bool optional, bool, std::string_view) {
  const YamlNode::Entry* entry = find(name);
  if (entry == nullptr && optional) return false;
  if (entry != nullptr && entry->value->kind != YamlNode::Kind::kMap) {
    const std::string hint = entry->value->kind == YamlNode::Kind::kNull
                                 ? "; leave the key out, or write {} for the defaults"
                                 : "";
    raise(entry->place, path(name),
          fmt::format("a map of keys is expected, not {}{}", entry->value->describe(), hint));
  }
  stack_.push_back({entry == nullptr ? nullptr : entry->value.get(), path(name) + "."});
  return true;
}

std::size_t Reader::enter_list(std::string_view name, std::size_t, std::string_view) {
  const YamlNode::Entry* entry = find(name);
  if (entry != nullptr && entry->value->kind != YamlNode::Kind::kList) {
    raise(entry->place, path(name),
          fmt::format("a list is expected, not {}", entry->value->describe()));
  }
  stack_.push_back({entry == nullptr ? nullptr : entry->value.get(), path(name)});
  return entry == nullptr ? 0 : entry->value->items.size();
}

void Reader::enter_item(std::size_t index) {
  const YamlNode& item = *stack_.back().node->items.at(index);
  const std::string item_path = fmt::format("{}[{}]", stack_.back().path, index);
  if (item.kind != YamlNode::Kind::kMap) {
    raise(item.place, item_path, fmt::format("a map of keys is expected, not {}", item.describe()));
  }
  stack_.push_back({&item, item_path + "."});
}

void Reader::leave() { stack_.pop_back(); }

const YamlNode::Entry* Reader::find(std::string_view name) {
  const YamlNode* node = stack_.back().node;
  const YamlNode::Entry* entry = node == nullptr ? nullptr : node->find(name);
  if (entry != nullptr) origins_[path(name)] = format_place(source_, entry->place);
  return entry;
}

std::string Reader::path(std::string_view name) const {
  return stack_.back().path + std::string(name);
}

void Reader::raise(const Place& place, const std::string& path, const std::string& message) const {
  throw Error(ErrorCode::kUsage, message,
              fmt::format("{}: {}", format_place(source_, place), path));
}

const std::string& Reader::plain_text(const YamlNode::Entry& entry, const std::string& key,
                                      const YamlNode& node, std::string_view expected) const {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) {
    raise(entry.place, key, fmt::format("{} is expected, not {}", expected, node.describe()));
  }
  return node.text;
}

std::string Reader::any_text(const Place& place, const std::string& key,
                             const YamlNode& node) const {
  if (node.kind != YamlNode::Kind::kScalar) {
    raise(place, key, fmt::format("a text is expected, not {}", node.describe()));
  }
  // On the command line everything is text, and quotes are the shell's.
  if (!node.quoted && place.override_text.empty() && looks_like_other_type(node.text)) {
    raise(
        place, key,
        fmt::format("a text is expected, not {}: write \"{}\" if it is one", node.text, node.text));
  }
  return node.text;
}

double Reader::checked_number(const YamlNode::Entry& entry, const std::string& key,
                              const YamlNode& node, const NumberRule& rule) const {
  const Parsed<double> parsed = parse_number(plain_text(entry, key, node, "a number"));
  if (!parsed.problem.empty()) raise(entry.place, key, parsed.problem);
  const double value = parsed.value;
  if (value < rule.min || value > rule.max || (rule.open_min && value == rule.min) ||
      (rule.open_max && value == rule.max)) {
    raise(entry.place, key, fmt::format("{} is expected, not {}", describe_rule(rule), node.text));
  }
  return value;
}

std::string describe_rule(const NumberRule& rule) {
  const NumberRule any;
  std::string text = "a number";
  if (rule.min != any.min) {
    text += fmt::format("{} {}", rule.open_min ? " above" : " of at least", rule.min);
  }
  if (rule.max != any.max) {
    text += fmt::format("{}{} {}", rule.min != any.min ? " and" : "",
                        rule.open_max ? " below" : " at most", rule.max);
  }
  return text;
}

std::string join_words(const std::vector<std::string_view>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += fmt::format("'{}'", words[i]);
  }
  return text;
}

}  // namespace tessera::config
