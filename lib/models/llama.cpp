#include "models/llama.hpp"

#include <cmath>

#include "models/head.hpp"

namespace tessera::models {

namespace {

/// Output projections start smaller, so that the residual stream's variance does not grow with
/// depth (Radford et al., "Language models are unsupervised multitask learners", 2019).
float output_std(const ModelOptions& options) {
  return static_cast<float>(options.init_std / std::sqrt(2.0 * options.num_layers));
}

}  // namespace

LlamaBlock::LlamaBlock(const ModelOptions& options, const std::optional<MoeOptions>& moe, int layer)
    : layer_(layer), dropout_(options.dropout) {
  const auto std = static_cast<float>(options.init_std);
  nn::AttentionOptions attention;
  attention.hidden_size = options.hidden_size;
  attention.num_heads = options.num_heads;
  attention.num_kv_heads = options.num_kv_heads;
  attention.rope_theta = options.rope_theta;
  attention.init_std = std;
  attention.output_init_std = output_std(options);
  input_norm_ = register_module(
      "input_layernorm", std::make_shared<nn::RMSNorm>(options.hidden_size, options.norm_eps));
  attention_ = register_module("self_attn", std::make_shared<nn::Attention>(attention));
  post_norm_ =
      register_module("post_attention_layernorm",
                      std::make_shared<nn::RMSNorm>(options.hidden_size, options.norm_eps));
  if (moe && (layer + 1) % moe->every_n_layers == 0) {
    mlp_ = register_module("block_sparse_moe", std::make_shared<nn::MoE>(*moe, options.hidden_size,
                                                                         options.intermediate_size,
                                                                         std, output_std(options)));
  } else {
    mlp_ = register_module(
        "mlp", std::make_shared<nn::GatedMLP>(options.hidden_size, options.intermediate_size, std,
                                              output_std(options)));
  }
  set_unit();
}

Variable LlamaBlock::forward(const Variable& input) {
  const auto site = static_cast<std::uint64_t>(layer_) * 2;
  const Variable attended = ops::dropout((*attention_)((*input_norm_)(input)), dropout_, site);
  const Variable middle = ops::add(input, attended);
  const Variable changed = ops::dropout((*mlp_)((*post_norm_)(middle)), dropout_, site + 1);
  return ops::add(middle, changed);
}

Llama::Llama(const ModelOptions& options, const std::optional<MoeOptions>& moe) {
  const auto std = static_cast<float>(options.init_std);
  // The trunk only groups names: "model.…".
  class Trunk final : public Module {};
  auto trunk = register_module("model", std::make_shared<Trunk>());
  embedding_ = trunk->register_module(
      "embed_tokens",
      std::make_shared<nn::Embedding>(options.vocab_size, options.hidden_size, std));
  embedding_->set_unit();
  class Layers final : public Module {};
  auto layers = trunk->register_module("layers", std::make_shared<Layers>());
  for (int layer = 0; layer < options.num_layers; ++layer) {
    blocks_.push_back(layers->register_module(std::to_string(layer),
                                              std::make_shared<LlamaBlock>(options, moe, layer)));
  }
  norm_ = trunk->register_module(
      "norm", std::make_shared<nn::RMSNorm>(options.hidden_size, options.norm_eps));
  head_ = register_module(
      "lm_head", options.tie_embeddings
                     ? std::make_shared<Head>(embedding_->weight)
                     : std::make_shared<Head>(options.vocab_size, options.hidden_size, std));
  set_unit();
}

void Llama::set_activation_checkpointing(bool blocks) {
  for (const auto& block : blocks_) block->set_checkpointing(blocks);
}

Variable Llama::forward(const Tensor& tokens) {
  Variable x = (*embedding_)(tokens);
  for (const auto& block : blocks_) x = (*block)(x);
  return (*head_)((*norm_)(x));
}

}  // namespace tessera::models
