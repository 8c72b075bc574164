// Decoder families, built from nn and moe. Parameter names follow Hugging Face.
#pragma once

#include <tessera/export.hpp>
#include <tessera/nn.hpp>
#include <tessera/options.hpp>

#include <memory>
#include <optional>

namespace tessera::models {

/// A decoder-only language model:
///   llama    RMSNorm, rotary positions, grouped-query attention, gated MLP
///   mixtral  llama with a mixture of experts in every `moe.every_n_layers`-th block
///   gpt2     LayerNorm, learned positions, biases, GELU MLP
/// `moe` present makes llama a mixture of experts too. Every block is a sharding unit; so are the
/// embedding, the head and each layer's experts. Raises Error{kUsage} for an unknown family or
/// sizes that do not fit each other.
TESSERA_API std::unique_ptr<Model> make(const ModelOptions& model,
                                        const std::optional<MoeOptions>& moe = std::nullopt);

}  // namespace tessera::models
