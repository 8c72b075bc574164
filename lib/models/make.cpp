#include <tessera/models.hpp>

#include <string_view>

#include "base/check.hpp"
#include "models/gpt2.hpp"
#include "models/llama.hpp"

namespace tessera::models {

namespace {

void require_positive(std::string_view name, int value) {
  if (value <= 0) fail(ErrorCode::kUsage, "model.{} is {}; it must be above 0", name, value);
}

/// Fills in sizes that follow from others, and refuses those that do not fit.
ModelOptions complete(ModelOptions model) {
  if (model.vocab_size == 0) model.vocab_size = tokenizer_vocab_size(model.tokenizer);
  if (model.num_kv_heads == 0) model.num_kv_heads = model.num_heads;
  if (model.intermediate_size == 0) {
    model.intermediate_size =
        model.family == "gpt2" ? 4 * model.hidden_size : (8 * model.hidden_size / 3 + 7) / 8 * 8;
  }
  require_positive("num_layers", model.num_layers);
  require_positive("hidden_size", model.hidden_size);
  require_positive("num_heads", model.num_heads);
  require_positive("num_kv_heads", model.num_kv_heads);
  require_positive("intermediate_size", model.intermediate_size);
  require_positive("vocab_size", model.vocab_size);
  require_positive("max_seq_len", model.max_seq_len);
  if (model.hidden_size % model.num_heads != 0) {
    fail(ErrorCode::kUsage, "model.hidden_size {} is not a multiple of model.num_heads {}",
         model.hidden_size, model.num_heads);
  }
  if (model.num_heads % model.num_kv_heads != 0) {
    fail(ErrorCode::kUsage, "model.num_heads {} is not a multiple of model.num_kv_heads {}",
         model.num_heads, model.num_kv_heads);
  }
  if (model.family == "gpt2" && model.num_kv_heads != model.num_heads) {
    fail(ErrorCode::kUsage, "model.family gpt2 has a key head for each of its {} heads, not {}",
         model.num_heads, model.num_kv_heads);
  }
  if (model.family != "gpt2" && model.hidden_size / model.num_heads % 2 != 0) {
    fail(ErrorCode::kUsage, "rotary positions need an even head size, not {}",
         model.hidden_size / model.num_heads);
  }
  return model;
}

}  // namespace

std::unique_ptr<Model> make(const ModelOptions& options, const std::optional<MoeOptions>& moe) {
  const ModelOptions model = complete(options);
  if (model.family == "gpt2") {
    if (moe) fail(ErrorCode::kUsage, "model.family gpt2 has no mixture of experts");
    return std::make_unique<Gpt2>(model);
  }
  if (model.family == "mixtral") return std::make_unique<Llama>(model, moe ? moe : MoeOptions{});
  if (model.family == "llama") return std::make_unique<Llama>(model, moe);
  fail(ErrorCode::kUsage, "unknown model.family '{}' (llama, gpt2 or mixtral)", model.family);
}

}  // namespace tessera::models
