// The Llama family: RMSNorm, rotary positions, grouped-query attention, and a gated MLP or a
// mixture of experts (Mixtral) per block.
#pragma once

#include <tessera/moe.hpp>
#include <tessera/nn.hpp>
#include <tessera/options.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::models {

/// One block: x + attention(norm(x)), then x + mlp(norm(x)).
class LlamaBlock final : public Layer {
 public:
  LlamaBlock(const ModelOptions& options, const std::optional<MoeOptions>& moe, int layer);

 protected:
  Variable forward(const Variable& input) override;

 private:
  int layer_;
  double dropout_;
  std::shared_ptr<nn::RMSNorm> input_norm_;
  std::shared_ptr<nn::Attention> attention_;
  std::shared_ptr<nn::RMSNorm> post_norm_;
  std::shared_ptr<Layer> mlp_;
};

/// The whole decoder with its head.
class Llama final : public Model {
 public:
  Llama(const ModelOptions& options, const std::optional<MoeOptions>& moe);
  void set_activation_checkpointing(bool blocks) override;

 protected:
  Variable forward(const Tensor& tokens) override;

 private:
  std::shared_ptr<nn::Embedding> embedding_;
  std::vector<std::shared_ptr<LlamaBlock>> blocks_;
  std::shared_ptr<nn::RMSNorm> norm_;
  std::shared_ptr<Layer> head_;
};

}  // namespace tessera::models
