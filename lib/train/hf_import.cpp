#include <tessera/import.hpp>

#include <string_view>

#include "base/check.hpp"
#include "base/env.hpp"
#include "train/hf_weights.hpp"

namespace tessera {

namespace {

constexpr std::string_view kParameterState = "param/";

}  // namespace

void load_hugging_face(const std::string& directory, Model& model) {
  load_hugging_face(directory, model, Env::posix());
}

void load_hugging_face(const std::string& directory, Model& model, Env& env) {
  const HuggingFaceWeights weights(env, directory, read_hugging_face_config(directory, env), model);
  model.context().stream().synchronize();
  for (const auto& parameter : model.parameters()) {
    const Tensor& value = parameter->value;
    if (!value.defined()) continue;  // an expert of another rank
    TESSERA_CHECK(value.dtype() == DType::kF32, "parameter '{}' is {}", parameter->name,
                  to_string(value.dtype()));
    weights.read(parameter->name, 0, value.elements(), value.data<float>());
    value.storage()->bump_version();
  }
}

void load_hugging_face(const std::string& directory, Model& model, Engine& engine) {
  load_hugging_face(directory, model, engine, Env::posix());
}

void load_hugging_face(const std::string& directory, Model& model, Engine& engine, Env& env) {
  const HuggingFaceWeights weights(env, directory, read_hugging_face_config(directory, env), model);
  for (const StateSlice& slice : engine.state_to_load()) {
    if (!slice.name.starts_with(kParameterState)) continue;
    weights.read(slice.name.substr(kParameterState.size()), slice.begin, slice.data.elements(),
                 slice.data.data<float>());
    slice.data.storage()->bump_version();
  }
  engine.state_loaded();
}

}  // namespace tessera
