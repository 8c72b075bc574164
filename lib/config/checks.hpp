// Checks that need more than one key, and sizes that follow from others.
#pragma once

#include <tessera/options.hpp>

#include <string>

#include "config/schema.hpp"

namespace tessera::config {

/// Fills in what follows from other keys and checks how the keys fit together. Raises Error{kUsage}
/// with the place of the key that is at fault; adds to document.config.warnings.
void complete_and_check(Document& document);

/// "file.yaml:12: trainer.zero_stage" where the key was given, else the key alone.
std::string key_context(const Config& config, const std::string& key);

}  // namespace tessera::config
