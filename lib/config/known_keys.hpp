// Which keys exist, and what the user may have meant by one that does not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/yaml_tree.hpp"

namespace tessera::config {

/// The dotted paths of all keys and sections; items of lists are written "debug.inject[]".
class KnownKeys {
 public:
  enum class Kind { kValue, kSection, kList, kFuture };

  /// Collects the schema.
  KnownKeys();

  /// Raises Error{kUsage} for the first key of `tree` (in file order) that does not exist, naming
  /// its place and the nearest known key, or that belongs to a part not built yet.
  void check(const YamlNode& tree, const std::string& source) const;

  /// Full paths of the keys that can be given, without sections.
  std::vector<std::string> value_paths() const;
  /// The path the user may have meant by `path`, or "" where nothing is near.
  std::string nearest(const std::string& path) const;

 private:
  struct Known {
    std::string path;
    Kind kind;
  };

  const Known* find(std::string_view path) const;
  void check_map(const YamlNode& map, const std::string& pattern, const std::string& path,
                 const std::string& source) const;

  std::vector<Known> keys_;
};

/// Optimal string alignment distance: insertions, deletions, substitutions and transpositions.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace tessera::config
