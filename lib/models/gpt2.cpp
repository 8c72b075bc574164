#include "models/gpt2.hpp"

#include <cmath>

#include "models/head.hpp"

namespace tessera::models {

namespace {

/// Groups names without parameters of its own.
class Group final : public Module {};

constexpr std::uint64_t kEmbeddingDropout = 1u << 20;

}  // namespace

Gpt2Block::Gpt2Block(const ModelOptions& options, int layer)
    : layer_(layer), dropout_(options.dropout) {
  const auto std = static_cast<float>(options.init_std);
  const auto output_std =
      static_cast<float>(options.init_std / std::sqrt(2.0 * options.num_layers));
  nn::AttentionOptions attention;
  attention.hidden_size = options.hidden_size;
  attention.num_heads = options.num_heads;
  attention.num_kv_heads = options.num_heads;
  attention.rope_theta = 0.0;
  attention.bias = true;
  attention.init_std = std;
  attention.output_init_std = output_std;
  attention.o = "c_proj";
  ln_1_ = register_module("ln_1",
                          std::make_shared<nn::LayerNorm>(options.hidden_size, options.norm_eps));
  attention_ = register_module("attn", std::make_shared<nn::Attention>(attention));
  ln_2_ = register_module("ln_2",
                          std::make_shared<nn::LayerNorm>(options.hidden_size, options.norm_eps));
  auto mlp = register_module("mlp", std::make_shared<Group>());
  fc_ = mlp->register_module(
      "c_fc",
      std::make_shared<nn::Linear>(options.hidden_size, options.intermediate_size, true, std));
  projection_ = mlp->register_module(
      "c_proj", std::make_shared<nn::Linear>(options.intermediate_size, options.hidden_size, true,
                                             output_std));
  set_unit();
}

Variable Gpt2Block::forward(const Variable& input) {
  const auto site = static_cast<std::uint64_t>(layer_) * 2;
  const Variable attended = ops::dropout((*attention_)((*ln_1_)(input)), dropout_, site);
  const Variable middle = ops::add(input, attended);
  const Variable hidden = ops::gelu((*fc_)((*ln_2_)(middle)));
  return ops::add(middle, ops::dropout((*projection_)(hidden), dropout_, site + 1));
}

Gpt2::Gpt2(const ModelOptions& options) : dropout_(options.dropout) {
  const auto std = static_cast<float>(options.init_std);
  auto trunk = register_module("transformer", std::make_shared<Group>());
  tokens_ = trunk->register_module(
      "wte", std::make_shared<nn::Embedding>(options.vocab_size, options.hidden_size, std));
  tokens_->set_unit();
  positions_ = trunk->register_module("wpe", std::make_shared<Group>());
  position_weight_ = positions_->register_parameter(
      "weight", {options.max_seq_len, options.hidden_size}, Init::normal(std));
  positions_->set_unit();
  auto blocks = trunk->register_module("h", std::make_shared<Group>());
  for (int layer = 0; layer < options.num_layers; ++layer) {
    blocks_.push_back(blocks->register_module(std::to_string(layer),
                                              std::make_shared<Gpt2Block>(options, layer)));
  }
  norm_ = trunk->register_module(
      "ln_f", std::make_shared<nn::LayerNorm>(options.hidden_size, options.norm_eps));
  head_ = register_module(
      "lm_head", options.tie_embeddings
                     ? std::make_shared<Head>(tokens_->weight)
                     : std::make_shared<Head>(options.vocab_size, options.hidden_size, std));
  set_unit();
}

void Gpt2::set_activation_checkpointing(bool blocks) {
  for (const auto& block : blocks_) block->set_checkpointing(blocks);
}

Variable Gpt2::forward(const Tensor& tokens) {
  Variable x = (*tokens_)(tokens);
  {
    const UnitScope scope(*positions_);
    x = ops::add_positions(x, position_weight_);
  }
  x = ops::dropout(x, dropout_, kEmbeddingDropout);
  for (const auto& block : blocks_) x = (*block)(x);
  return (*head_)((*norm_)(x));
}

}  // namespace tessera::models
