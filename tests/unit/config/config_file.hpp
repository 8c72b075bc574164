// Loads configurations from texts, for tests.
#pragma once

#include <tessera/error.hpp>
#include <tessera/options.hpp>

#include <fstream>
#include <string>
#include <vector>

#include "support/temporary_directory.hpp"

namespace tessera::testing {

/// Loads `text` as a file; contexts hold its path, which ends with "/c.yaml".
inline Config load_text(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const TemporaryDirectory directory;
  const std::string path = directory / "c.yaml";
  std::ofstream(path, std::ios::binary) << text;
  return load_config(path, overrides);
}

/// "message [context]" with the file's folder removed, or "" where `text` loads.
inline std::string load_error(const std::string& text,
                              const std::vector<std::string>& overrides = {}, int ranks = 0) {
  try {
    Config config = load_text(text, overrides);
    if (ranks > 0) resolve_for_ranks(config, ranks);
    return {};
  } catch (const Error& error) {
    const std::size_t file = error.context().find("/c.yaml");
    const std::string context =
        file == std::string::npos ? error.context() : error.context().substr(file + 1);
    return error.message() + " [" + context + "]";
  }
}

}  // namespace tessera::testing
