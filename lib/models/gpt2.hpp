// The GPT-2 family: LayerNorm, learned positions, biases, GELU MLP.
#pragma once

#include <tessera/nn.hpp>
#include <tessera/options.hpp>

#include <memory>
#include <vector>

namespace tessera::models {

/// One block: x + attention(ln(x)), then x + mlp(ln(x)).
class Gpt2Block final : public Layer {
 public:
  Gpt2Block(const ModelOptions& options, int layer);

 protected:
  Variable forward(const Variable& input) override;

 private:
  int layer_;
  double dropout_;
  std::shared_ptr<nn::LayerNorm> ln_1_;
  std::shared_ptr<nn::Attention> attention_;
  std::shared_ptr<nn::LayerNorm> ln_2_;
  std::shared_ptr<nn::Linear> fc_;
  std::shared_ptr<nn::Linear> projection_;
};

/// The whole decoder with its head.
class Gpt2 final : public Model {
 public:
  explicit Gpt2(const ModelOptions& options);
  void set_activation_checkpointing(bool blocks) override;

 protected:
  Variable forward(const Tensor& tokens) override;

 private:
  double dropout_;
  std::shared_ptr<nn::Embedding> tokens_;
  std::shared_ptr<Module> positions_;
  std::shared_ptr<Parameter> position_weight_;
  std::vector<std::shared_ptr<Gpt2Block>> blocks_;
  std::shared_ptr<nn::LayerNorm> norm_;
  std::shared_ptr<Layer> head_;
};

}  // namespace tessera::models
