// tessera config
#include <tessera/error.hpp>
#include <tessera/options.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "tessera/command.hpp"

namespace tessera::tool {

namespace {

struct Arguments {
  std::string path;
  std::vector<std::string> overrides;
  int ranks = 0;
  bool origins = false;
  bool reference = false;
};

// "key = value   [origin]", aligned.
std::string list_values(const Config& config) {
  const std::vector<ConfigValue> values = config_values(config);
  std::size_t width = 0;
  for (const ConfigValue& value : values) {
    width = std::max(width, value.key.size() + value.value.size() + 3);
  }
  std::string text;
  for (const ConfigValue& value : values) {
    const std::string line = fmt::format("{} = {}", value.key, value.value);
    text += fmt::format("{:<{}}  [{}]\n", line, width, value.origin);
  }
  return text;
}

int run(const Arguments& arguments) {
  if (arguments.reference) {
    print(config_reference());
    return 0;
  }
  if (arguments.path.empty()) throw Error(ErrorCode::kUsage, "CONFIG is required");
  Config config = load_config(arguments.path, arguments.overrides);
  if (arguments.ranks > 0) {
    resolve_for_ranks(config, arguments.ranks);
  } else {
    check_for_any_ranks(config);
  }
  for (const std::string& warning : config.warnings) {
    std::fprintf(stderr, "tessera: warning: %s\n", warning.c_str());
  }
  print(arguments.origins ? list_values(config) : config.resolved_yaml);
  return 0;
}

}  // namespace

void add_config(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("config", "Check a file and print the full YAML, defaults included");
  add_config_options(*command, arguments->path, arguments->overrides)->required(false);
  add_ranks_option(*command, arguments->ranks,
                   "Fill in what depends on the number of ranks, for this many");
  command->add_flag("--origins", arguments->origins,
                    "List every key with its value and where that comes from");
  command->add_flag("--reference", arguments->reference,
                    "Print the tables of docs/configuration.md: every key that there is");
  command->callback([arguments, &invocation] {
    invocation.run = [arguments] { return on_first_rank([&] { return run(*arguments); }); };
  });
}

}  // namespace tessera::tool
