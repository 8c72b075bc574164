#include "config/overrides.hpp"

#include <tessera/error.hpp>

#include <map>

#include <fmt/format.h>

namespace tessera::config {

namespace {

[[noreturn]] void raise(const std::string& context, const std::string& message) {
  throw Error(ErrorCode::kUsage, message, context);
}

std::vector<std::string> split_path(const std::string& path, const std::string& context) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t dot = path.find('.', begin);
    parts.push_back(path.substr(begin, dot - begin));
    if (parts.back().empty()) {
      raise(context, "--set expects key.path=value, such as trainer.max_steps=100");
    }
    if (dot == std::string::npos) return parts;
    begin = dot + 1;
  }
}

// `old`, at `old_place`, with what `added` gives, at `path`.
YamlPointer merge(const YamlPointer& old, const Place& old_place, const YamlPointer& added,
                  const std::string& path, const std::string& source);

YamlPointer with_entry(const YamlNode& map, const YamlNode::Entry& added, const std::string& path,
                       const std::string& source) {
  auto copy = std::make_shared<YamlNode>(map);
  for (YamlNode::Entry& entry : copy->entries) {
    if (entry.key != added.key) continue;
    entry.value = merge(entry.value, entry.place, added.value, path, source);
    if (entry.value == added.value) entry.place = added.place;
    return copy;
  }
  copy->entries.push_back(added);
  return copy;
}

YamlPointer merge(const YamlPointer& old, const Place& old_place, const YamlPointer& added,
                  const std::string& path, const std::string& source) {
  if (added->kind != YamlNode::Kind::kMap) return added;
  if (old->kind != YamlNode::Kind::kMap) {
    // Replacing it would hide what is wrong there.
    raise(fmt::format("{}: {}", format_place(source, old_place), path),
          fmt::format("a map of keys is expected, not {}", old->describe()));
  }
  YamlPointer result = old;
  for (const YamlNode::Entry& entry : added->entries) {
    result = with_entry(*result, entry, path.empty() ? entry.key : path + "." + entry.key, source);
  }
  return result;
}

}  // namespace

YamlPointer apply_overrides(YamlPointer root, const std::vector<std::string>& overrides,
                            const std::string& source) {
  std::map<std::string, std::string> seen;
  for (const std::string& text : overrides) {
    const Place place{0, "--set " + text};
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      raise(place.override_text, "--set expects key.path=value, such as trainer.max_steps=100");
    }
    const std::string path = text.substr(0, equals);
    const std::vector<std::string> parts = split_path(path, place.override_text);
    if (const auto [first, is_new] = seen.emplace(path, text); !is_new) {
      raise(place.override_text,
            fmt::format("'{}' is set twice, first by --set {}", path, first->second));
    }
    YamlPointer value = parse_yaml(text.substr(equals + 1), source, place);
    if (value == nullptr) raise(place.override_text, fmt::format("'{}' gets no value", path));

    // From the inside out, the value becomes a tree of maps with one key each.
    for (std::size_t i = parts.size(); i-- > 0;) {
      auto map = std::make_shared<YamlNode>();
      map->kind = YamlNode::Kind::kMap;
      map->place = place;
      map->entries.push_back({parts[i], place, value});
      value = map;
    }
    root = merge(root, Place{}, value, "", source);
  }
  return root;
}

}  // namespace tessera::config
