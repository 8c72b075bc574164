#include "config/checks.hpp"

#include <tessera/error.hpp>

#include <fmt/format.h>

namespace tessera::config {

namespace {

constexpr int kByteVocabulary = 256;
constexpr const char* kCheckpointingKey = "trainer.activation_checkpointing";
constexpr const char* kPartitionKey = "activation_checkpointing.partition_activations";

bool given(const Config& config, const std::string& key) { return config.origins.contains(key); }

/// Raises Error{kUsage} at the first of `keys` that was given.
template <typename... Args>
[[noreturn]] void refuse(const Config& config, std::initializer_list<const char*> keys,
                         fmt::format_string<Args...> format, Args&&... args) {
  const char* key = *keys.begin();
  for (const char* candidate : keys) {
    if (!given(config, candidate)) continue;
    key = candidate;
    break;
  }
  throw Error(ErrorCode::kUsage, fmt::format(format, std::forward<Args>(args)...),
              key_context(config, key));
}

void warn(Config& config, const std::string& key, const std::string& message) {
  config.warnings.push_back(fmt::format("{} [{}]", message, key_context(config, key)));
}

void complete_run(Config& config) {
  if (config.run.dir.empty()) config.run.dir = "runs/" + config.run.name;
}

void complete_model(Config& config) {
  ModelOptions& model = config.model;
  const bool gpt2 = model.family == "gpt2";
  if (model.hidden_size % model.num_heads != 0) {
    refuse(config, {"model.num_heads", "model.hidden_size"},
           "num_heads {} does not divide hidden_size {}", model.num_heads, model.hidden_size);
  }
  if (model.num_kv_heads == 0) model.num_kv_heads = model.num_heads;
  if (model.num_heads % model.num_kv_heads != 0) {
    refuse(config, {"model.num_kv_heads", "model.num_heads"},
           "num_kv_heads {} does not divide num_heads {}", model.num_kv_heads, model.num_heads);
  }
  if (gpt2 && model.num_kv_heads != model.num_heads) {
    refuse(config, {"model.num_kv_heads", "model.num_heads"},
           "family gpt2 has as many key/value heads as heads: num_kv_heads is {}, num_heads {}",
           model.num_kv_heads, model.num_heads);
  }
  const int head_size = model.hidden_size / model.num_heads;
  if (!gpt2 && head_size % 2 != 0) {
    refuse(config, {"model.num_heads", "model.hidden_size"},
           "rotary positions need an even head size; hidden_size {} / num_heads {} is {}",
           model.hidden_size, model.num_heads, head_size);
  }
  if (model.intermediate_size == 0) {
    const std::int64_t hidden = model.hidden_size;
    const std::int64_t size = gpt2 ? 4 * hidden : (8 * hidden / 3 + 7) / 8 * 8;
    if (size > std::numeric_limits<int>::max()) {
      refuse(config, {"model.hidden_size"}, "hidden_size {} is too large", hidden);
    }
    model.intermediate_size = static_cast<int>(size);
  }
  if (!model.tokenizer.path.empty()) {
    refuse(config, {"model.tokenizer.path"}, "the byte tokenizer has no file: leave out path");
  }
  if (model.vocab_size != 0 && model.vocab_size < kByteVocabulary) {
    refuse(config, {"model.vocab_size"},
           "vocab_size {} is less than the {} tokens of the byte "
           "tokenizer",
           model.vocab_size, kByteVocabulary);
  }
  if (gpt2 && given(config, "model.rope_theta")) {
    warn(config, "model.rope_theta",
         "family gpt2 has no rotary positions: rope_theta has no effect");
  }
}

void complete_moe(Config& config) {
  const bool mixtral = config.model.family == "mixtral";
  if (mixtral && !config.moe) config.moe.emplace();
  if (!config.moe) return;
  const MoeOptions& moe = *config.moe;
  if (config.model.family == "gpt2") {
    refuse(config, {"moe", "model.family"},
           "family gpt2 has no mixture of experts: remove 'moe', "
           "or use llama or mixtral");
  }
  if (moe.top_k > moe.num_experts) {
    refuse(config, {"moe.top_k", "moe.num_experts"}, "top_k {} is more than num_experts {}",
           moe.top_k, moe.num_experts);
  }
  if (moe.every_n_layers > config.model.num_layers) {
    refuse(config, {"moe.every_n_layers", "model.num_layers"},
           "every_n_layers {} is more than num_layers {}: no block would have experts",
           moe.every_n_layers, config.model.num_layers);
  }
  if (moe.drop_policy == "probs" && moe.top_k < 3) {
    warn(config, "moe.drop_policy",
         fmt::format("drop_policy probs has no effect with top_k {}: it "
                     "needs 3 or more",
                     moe.top_k));
  }
  if (mixtral && moe.every_n_layers != 1) {
    refuse(config, {"moe.every_n_layers"},
           "family mixtral has experts in every block, but every_n_layers is {}: use family llama",
           moe.every_n_layers);
  }
}

void complete_trainer(Document& document) {
  Config& config = document.config;
  if (document.activation_checkpointing &&
      document.activation_checkpointing->partition_activations) {
    if (given(config, kCheckpointingKey) && config.trainer.activation_checkpointing != "block") {
      refuse(config, {kPartitionKey}, "partition_activations: true contradicts {}: {} at {}",
             kCheckpointingKey, config.trainer.activation_checkpointing,
             config.origins.at(kCheckpointingKey));
    }
    config.trainer.activation_checkpointing = "block";
    config.origins[kCheckpointingKey] = config.origins.at(kPartitionKey);
    warn(config, kPartitionKey,
         fmt::format("partition_activations means {}: block; partitioning "
                     "has no effect without tensor parallelism",
                     kCheckpointingKey));
  }
  if (config.trainer.eval_interval > 0 && config.data.eval.empty() &&
      config.data.eval_fraction == 0.0) {
    refuse(config, {"trainer.eval_interval"},
           "evaluations need data: data.eval is empty and data.eval_fraction is 0");
  }
}

void check_learning(Config& config) {
  const OptimizerOptions& optimizer = config.optimizer;
  if (optimizer.type != "sgd" && optimizer.momentum != 0.0) {
    warn(config, "optimizer.momentum", fmt::format("momentum has no effect on {}", optimizer.type));
  }
  const SchedulerOptions& scheduler = config.scheduler;
  const std::int64_t total =
      scheduler.total_steps > 0 ? scheduler.total_steps : config.trainer.max_steps;
  if (scheduler.warmup_steps > total) {
    refuse(config, {"scheduler.warmup_steps", "scheduler.total_steps", "trainer.max_steps"},
           "warmup_steps {} is more than {} {}", scheduler.warmup_steps,
           scheduler.total_steps > 0 ? "total_steps" : "trainer.max_steps", total);
  }
}

void check_data(Config& config) {
  if (config.data.seq_len > config.model.max_seq_len) {
    refuse(config, {"data.seq_len", "model.max_seq_len"},
           "data.seq_len {} is more than model.max_seq_len {}", config.data.seq_len,
           config.model.max_seq_len);
  }
}

void check_checkpoint(Config& config) {
  if (config.checkpoint.async) {
    refuse(config, {"checkpoint.async"},
           "'checkpoint.async: true' is not supported in this version; only false is");
  }
  if (config.checkpoint.keep_last == 1) {
    warn(config, "checkpoint.keep_last",
         "keep_last 1 leaves nothing to fall back to when the newest checkpoint is damaged");
  }
}

void check_faults(Config& config) {
  for (std::size_t i = 0; i < config.debug.inject.size(); ++i) {
    const FaultInjection& fault = config.debug.inject[i];
    for (const auto& [key, missing] :
         {std::pair("step", fault.step < 1), std::pair("action", fault.action.empty())}) {
      if (!missing) continue;
      throw Error(ErrorCode::kUsage, fmt::format("the key '{}' is missing", key),
                  fmt::format("{}[{}]", key_context(config, "debug.inject"), i));
    }
  }
}

}  // namespace

void complete_and_check(Document& document) {
  Config& config = document.config;
  complete_run(config);
  complete_model(config);
  complete_moe(config);
  complete_trainer(document);
  check_learning(config);
  check_data(config);
  check_checkpoint(config);
  check_faults(config);
}

std::string key_context(const Config& config, const std::string& key) {
  const auto origin = config.origins.find(key);
  return origin == config.origins.end() ? key : fmt::format("{}: {}", origin->second, key);
}

}  // namespace tessera::config
