// Import of models from Hugging Face directories: config.json and safetensors files.
//
//   auto config = read_hugging_face_config(directory);
//   auto model = models::make(config.model, config.moe);
//   load_hugging_face(directory, *model);            // or load_hugging_face(directory, *model,
//   engine)
//
// Nothing is guessed: a field of config.json that would change the result and has no counterpart
// here, a tensor that is missing, left over or of another shape, and files that contradict their
// configuration are Error{kData} naming the field or tensor and the file.
#pragma once

#include <tessera/engine.hpp>
#include <tessera/export.hpp>
#include <tessera/nn.hpp>
#include <tessera/options.hpp>

#include <optional>
#include <string>
#include <vector>

namespace tessera {

class Env;

/// What a config.json describes: llama, mixtral or gpt2, in the layouts of transformers 4
/// (`rope_theta`, `torch_dtype`) and 5 (`rope_parameters`, `dtype`).
struct HuggingFaceConfig {
  ModelOptions model;
  /// Mixtral only. Nothing is dropped, as in transformers; aux_loss_coef is the file's where
  /// output_router_logits asks for the balance loss, else 0.
  std::optional<MoeOptions> moe;
  /// What training will do otherwise than the file says, such as a dropout that does not exist
  /// here.
  std::vector<std::string> warnings;
};

/// Reads `directory`/config.json. A field that is absent has the value that transformers gives it,
/// except sizes, which must be there.
TESSERA_API HuggingFaceConfig read_hugging_face_config(const std::string& directory);
/// The same from other files than the operating system's.
TESSERA_API HuggingFaceConfig read_hugging_face_config(const std::string& directory, Env& env);

/// Fills the parameters that this rank holds whole (Module::materialize) from the directory's
/// model.safetensors, or from the files that model.safetensors.index.json names. FP64, BF16 and
/// FP16 values are converted.
TESSERA_API void load_hugging_face(const std::string& directory, Model& model);
/// The same from other files than the operating system's.
TESSERA_API void load_hugging_face(const std::string& directory, Model& model, Env& env);
/// Fills the engine's parameters: each rank reads its own ranges only. `model` is the engine's. The
/// optimizer's state and the step count stay as they are. Collective.
TESSERA_API void load_hugging_face(const std::string& directory, Model& model, Engine& engine);
/// The same from other files than the operating system's.
TESSERA_API void load_hugging_face(const std::string& directory, Model& model, Engine& engine,
                                   Env& env);

}  // namespace tessera
