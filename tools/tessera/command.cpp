#include "tessera/command.hpp"

#include <tessera/error.hpp>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace tessera::tool {

CLI::Option* add_config_options(CLI::App& command, std::string& path,
                                std::vector<std::string>& overrides) {
  CLI::Option* config =
      command.add_option("CONFIG", path, "YAML file (docs/configuration.md)")->required();
  command
      .add_option("--set", overrides,
                  "key.path=value takes the place of what the file says; may be repeated")
      ->allow_extra_args(false);
  return config;
}

void add_ranks_option(CLI::App& command, int& ranks, const std::string& meaning) {
  command.add_option("--ranks", ranks, meaning)->check(CLI::Range(1, 65536));
}

int launcher_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

int on_first_rank(const std::function<int()>& body) { return launcher_rank() == 0 ? body() : 0; }

void print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) {
    throw Error(ErrorCode::kData,
                fmt::format("cannot write to standard output: {}", std::strerror(errno)));
  }
}

void print_error(const std::string& message) {
  if (launcher_rank() != 0) return;
  std::fprintf(stderr, "tessera: error: %s\n", message.c_str());
}

}  // namespace tessera::tool
