// --set key.path=value: values from the command line take the place of those in the file's tree, so
// that everything after sees one tree.
#pragma once

#include <string>
#include <vector>

#include "config/yaml_tree.hpp"

namespace tessera::config {

/// `root` (a map) with every override put in its place; the value is read as YAML. A map as value
/// adds its keys to those that are there. Raises Error{kUsage} with the override as context where
/// it is malformed, gives no value, repeats another override's key or goes through something that
/// is not a map.
YamlPointer apply_overrides(YamlPointer root, const std::vector<std::string>& overrides,
                            const std::string& source);

}  // namespace tessera::config
