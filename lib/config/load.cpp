// YAML file -> Config: text -> tree -> overrides -> known keys -> values -> checks.
#include <tessera/error.hpp>
#include <tessera/options.hpp>

#include <fmt/format.h>

#include "base/env.hpp"
#include "config/checks.hpp"
#include "config/known_keys.hpp"
#include "config/overrides.hpp"
#include "config/reader.hpp"
#include "config/schema.hpp"
#include "config/writer.hpp"
#include "config/yaml_tree.hpp"

namespace tessera {

namespace {

constexpr std::uint64_t kMaxFileBytes = 1 << 20;

std::string read_config_file(const std::string& path) {
  Env& env = Env::posix();
  if (!env.exists(path))
    throw Error(ErrorCode::kData, "the configuration file does not exist", path);
  if (env.is_directory(path)) {
    throw Error(ErrorCode::kData, "the configuration file is a directory", path);
  }
  return env.read_file(path, kMaxFileBytes);
}

config::YamlPointer parse_config(const std::string& path) {
  config::YamlPointer root = config::parse_yaml(read_config_file(path), path);
  if (root == nullptr || root->kind == config::YamlNode::Kind::kNull) {
    throw Error(ErrorCode::kUsage, "the configuration is empty: a map of sections is expected",
                path);
  }
  if (root->kind != config::YamlNode::Kind::kMap) {
    throw Error(
        ErrorCode::kUsage,
        fmt::format("a map of sections such as 'model:' is expected, not {}", root->describe()),
        config::format_place(path, root->place));
  }
  return root;
}

config::Writer write(const Config& config) {
  // Descriptions take what they may change; a writer changes nothing.
  config::Document document{config, std::nullopt};
  config::Writer writer;
  describe(document, writer);
  return writer;
}

}  // namespace

Config load_config(const std::string& path, const std::vector<std::string>& overrides) {
  const config::YamlPointer root = config::apply_overrides(parse_config(path), overrides, path);
  config::KnownKeys().check(*root, path);

  config::Document document;
  config::Reader reader(*root, path);
  describe(document, reader);
  document.config.origins = reader.origins();
  config::complete_and_check(document);
  document.config.resolved_yaml = config_to_yaml(document.config);
  return document.config;
}

std::string config_to_yaml(const Config& config) { return write(config).yaml(); }

std::vector<ConfigValue> config_values(const Config& config) {
  std::vector<ConfigValue> values;
  const config::Writer writer = write(config);
  for (const config::Writer::Value& value : writer.values()) {
    const auto origin = config.origins.find(value.path);
    values.push_back(
        {value.path, value.text, origin == config.origins.end() ? "default" : origin->second});
  }
  return values;
}

std::string config_reference() { return config::reference_tables(); }

}  // namespace tessera
