// Every key of the YAML file: its name, type, range and meaning, in the order of the documentation.
// A new key is one line in schema.cpp and one member in include/tessera/options.hpp.
#pragma once

#include <tessera/options.hpp>

#include "config/visitor.hpp"

namespace tessera::config {

/// `activation_checkpointing:` as DeepSpeed's users write it; it sets
/// trainer.activation_checkpointing.
struct ActivationCheckpointingAlias {
  bool partition_activations = false;
};

/// What the file may hold: the options, and sections that are other spellings of some of them.
struct Document {
  Config config;
  std::optional<ActivationCheckpointingAlias> activation_checkpointing;
};

/// Calls the visitor with every key.
void describe(Document& document, SchemaVisitor& visitor);

}  // namespace tessera::config
