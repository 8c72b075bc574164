// YAML text as a tree that keeps what checks need: the line of every key, and whether a scalar was
// quoted. yaml-cpp's own nodes keep neither duplicate keys nor quotes, so the tree is built from
// its events.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

/// Where a value was written: a line of the file, or a --set argument.
struct Place {
  int line = 0;               ///< from 1; 0 = no line
  std::string override_text;  ///< "--set key=value"; empty = in the file
};

/// One node. Nodes are immutable and may be shared (aliases).
struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Entry {
    std::string key;
    Place place;  ///< of the key
    std::shared_ptr<const YamlNode> value;
  };

  Kind kind = Kind::kNull;
  std::string text;     ///< kScalar: after unquoting
  bool quoted = false;  ///< kScalar: quoted, a block scalar or tagged !!str, so certainly text
  std::vector<std::shared_ptr<const YamlNode>> items;  ///< kList
  std::vector<Entry> entries;                          ///< kMap, in file order, keys unique
  Place place;

  /// The entry of that key, or null.
  const Entry* find(std::string_view key) const;
  /// "a map", "a list", "the text 'x'", … for messages.
  std::string describe() const;
};

using YamlPointer = std::shared_ptr<const YamlNode>;

/// Parses one document. `source` is the file's name in contexts; `origin` is copied into the places
/// of all nodes, with the line where it has no override text. No document gives a null pointer.
/// Raises Error{kUsage} with "source:line" for syntax errors, control bytes, text that is not
/// UTF-8, several documents, duplicate keys at any depth (naming both lines), merge keys, tags
/// other than
/// !!str, keys that are not scalars, and anchors that contain themselves.
YamlPointer parse_yaml(std::string_view text, const std::string& source, const Place& origin = {});

/// "source:12", or the override's text.
std::string format_place(const std::string& source, const Place& place);

}  // namespace tessera::config
