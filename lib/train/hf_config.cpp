// config.json of Hugging Face models. Every field is one of: used, required to have the one value
// that Tessera computes, known to have no effect on the result, or refused.
#include <tessera/import.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "base/env.hpp"

namespace tessera {

namespace {

using nlohmann::json;

/// Fields without effect on logits, loss or gradients: identity, storage type, and what generation
/// and other heads use.
constexpr auto kWithoutEffect = std::to_array<std::string_view>({
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "model_type",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "use_bfloat16",
    "use_cache",
});

/// Gives out the fields of one JSON object and remembers which were asked for.
class Fields {
 public:
  Fields(const json& object, std::string path, std::string prefix = {})
      : object_(object), path_(std::move(path)), prefix_(std::move(prefix)) {}

  [[noreturn]] void refuse(std::string_view name, const std::string& reason) const {
    throw Error(ErrorCode::kData, fmt::format("field '{}{}' {}", prefix_, name, reason), path_);
  }

  /// The field, or null where it is absent or null.
  const json* find(std::string_view name) {
    asked_.emplace(name);
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  int size(std::string_view name) {
    const auto value = optional_size(name);
    if (!value) refuse(name, "is missing");
    return *value;
  }

  std::optional<int> optional_size(std::string_view name) {
    const json* field = find(name);
    if (field == nullptr) return std::nullopt;
    const bool whole = field->is_number_integer() &&
                       (field->is_number_unsigned() || field->get<std::int64_t>() >= 0);
    if (!whole || field->get<std::uint64_t>() == 0 ||
        field->get<std::uint64_t>() > std::numeric_limits<int>::max()) {
      refuse(name, fmt::format("is {}, not a size", field->dump()));
    }
    return field->get<int>();
  }

  double number(std::string_view name, double absent) {
    const json* field = find(name);
    if (field == nullptr) return absent;
    if (!field->is_number() || !std::isfinite(field->get<double>())) {
      refuse(name, fmt::format("is {}, not a number", field->dump()));
    }
    return field->get<double>();
  }

  bool boolean(std::string_view name, bool absent) {
    const json* field = find(name);
    if (field == nullptr) return absent;
    if (!field->is_boolean()) refuse(name, fmt::format("is {}, not a boolean", field->dump()));
    return field->get<bool>();
  }

  /// Refuses every value but those given; absent and null mean the first one.
  void must_be(std::string_view name, std::initializer_list<json> allowed) {
    const json* field = find(name);
    if (field == nullptr || std::find(allowed.begin(), allowed.end(), *field) != allowed.end()) {
      return;
    }
    refuse(name,
           fmt::format("is {}; only {} is supported", field->dump(), allowed.begin()->dump()));
  }

  void refuse_others() const {
    for (const auto& [name, value] : object_.items()) {
      if (asked_.contains(name) ||
          std::ranges::find(kWithoutEffect, name) != kWithoutEffect.end()) {
        continue;
      }
      refuse(name, fmt::format("({}) is not known; it may change the result", value.dump()));
    }
  }

 private:
  const json& object_;
  std::string path_;
  std::string prefix_;
  std::set<std::string, std::less<>> asked_;
};

/// The rotary base: `rope_theta` (transformers 4) or in `rope_parameters` (5). Both tables may only
/// describe the plain rotary embedding.
double rope_theta(Fields& fields, const std::string& path, double absent,
                  std::vector<std::string>& warnings) {
  const json* plain = fields.find("rope_theta");
  double theta = fields.number("rope_theta", absent);
  for (const std::string name : {"rope_parameters", "rope_scaling"}) {
    const json* table = fields.find(name);
    if (table == nullptr) continue;
    if (!table->is_object()) fields.refuse(name, "is not an object");
    Fields inner(*table, path, name + ".");
    inner.must_be("rope_type", {"default"});
    inner.must_be("type", {"default"});
    inner.must_be("partial_rotary_factor", {1.0});
    if (const json* nested = inner.find("rope_theta")) {
      const double other = inner.number("rope_theta", theta);
      if (plain != nullptr && other != theta) {
        fields.refuse("rope_theta", fmt::format("is {}, {}.rope_theta {}", theta, name, other));
      }
      theta = other;
      plain = nested;
    }
    inner.refuse_others();
  }
  if (!(theta > 0.0)) fields.refuse("rope_theta", fmt::format("is {}", theta));
  if (plain == nullptr) {
    warnings.push_back(fmt::format("{}: no rope_theta; {} is the family's default", path, theta));
  }
  return theta;
}

void warn_dropout(Fields& fields, std::string_view name, const std::string& path,
                  std::vector<std::string>& warnings) {
  const double p = fields.number(name, 0.0);
  if (p == 0.0) return;
  warnings.push_back(fmt::format("{}: {} {} has no counterpart; attention weights are not dropped",
                                 path, name, p));
}

void read_common(Fields& fields, HuggingFaceConfig& config) {
  config.model.vocab_size = fields.size("vocab_size");
  config.model.init_std = fields.number("initializer_range", config.model.init_std);
  fields.must_be("is_encoder_decoder", {false});
  fields.must_be("add_cross_attention", {false});
  fields.must_be("tie_encoder_decoder", {false});
  fields.must_be("is_decoder", {false, true});
  fields.must_be("cross_attention_hidden_size", {nullptr});
  fields.must_be("pruned_heads", {json::object()});
}

void read_llama(Fields& fields, const std::string& path, HuggingFaceConfig& config) {
  ModelOptions& model = config.model;
  const bool mixtral = model.family == "mixtral";
  model.num_layers = fields.size("num_hidden_layers");
  model.hidden_size = fields.size("hidden_size");
  model.num_heads = fields.size("num_attention_heads");
  // Absent means the number of heads for Llama, but 8 for Mixtral.
  model.num_kv_heads = mixtral
                           ? fields.size("num_key_value_heads")
                           : fields.optional_size("num_key_value_heads").value_or(model.num_heads);
  model.intermediate_size = fields.size("intermediate_size");
  model.max_seq_len = fields.size("max_position_embeddings");
  model.norm_eps = fields.number("rms_norm_eps", mixtral ? 1e-5 : 1e-6);
  model.tie_embeddings = fields.boolean("tie_word_embeddings", false);
  model.rope_theta = rope_theta(fields, path, mixtral ? 1e6 : 1e4, config.warnings);
  fields.must_be("partial_rotary_factor", {1.0});
  fields.must_be("hidden_act", {"silu"});
  fields.must_be("attention_bias", {false});
  fields.must_be("mlp_bias", {false});
  const int head = model.hidden_size / model.num_heads;
  if (const auto given = fields.optional_size("head_dim");
      given && (*given != head || model.hidden_size % model.num_heads != 0)) {
    fields.refuse("head_dim", fmt::format("is {}, not hidden_size {} / num_attention_heads {}",
                                          *given, model.hidden_size, model.num_heads));
  }
  if (const auto window = fields.optional_size("sliding_window");
      window && *window < model.max_seq_len) {
    fields.refuse("sliding_window",
                  fmt::format("is {}, less than max_position_embeddings {}; attention over all "
                              "positions would give other results",
                              *window, model.max_seq_len));
  }
  warn_dropout(fields, "attention_dropout", path, config.warnings);
  if (!mixtral) return;
  MoeOptions moe;
  moe.num_experts = fields.size("num_local_experts");
  moe.top_k = fields.size("num_experts_per_tok");
  moe.drop_tokens = false;
  const double coefficient = fields.number("router_aux_loss_coef", 0.001);
  moe.aux_loss_coef = fields.boolean("output_router_logits", false) ? coefficient : 0.0;
  fields.must_be("router_jitter_noise", {0.0});
  config.moe = moe;
}

void read_gpt2(Fields& fields, const std::string& path, HuggingFaceConfig& config) {
  ModelOptions& model = config.model;
  model.num_layers = fields.size("n_layer");
  model.hidden_size = fields.size("n_embd");
  model.num_heads = fields.size("n_head");
  model.num_kv_heads = model.num_heads;
  model.intermediate_size = fields.optional_size("n_inner").value_or(4 * model.hidden_size);
  model.max_seq_len = fields.size("n_positions");
  model.norm_eps = fields.number("layer_norm_epsilon", 1e-5);
  model.tie_embeddings = fields.boolean("tie_word_embeddings", true);
  fields.must_be("n_ctx", {model.max_seq_len});
  fields.must_be("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  fields.must_be("scale_attn_weights", {true});
  fields.must_be("scale_attn_by_inverse_layer_idx", {false});
  fields.must_be("reorder_and_upcast_attn", {false});
  // transformers drops with 0.1 where nothing is said.
  model.dropout = fields.number("resid_pdrop", 0.1);
  const double embedding = fields.number("embd_pdrop", 0.1);
  if (embedding != model.dropout) {
    fields.refuse("embd_pdrop", fmt::format("is {}, resid_pdrop {}; one dropout serves both",
                                            embedding, model.dropout));
  }
  warn_dropout(fields, "attn_pdrop", path, config.warnings);
}

}  // namespace

HuggingFaceConfig read_hugging_face_config(const std::string& directory) {
  return read_hugging_face_config(directory, Env::posix());
}

HuggingFaceConfig read_hugging_face_config(const std::string& directory, Env& env) {
  const std::string path = join_path(directory, "config.json");
  const json document = json::parse(env.read_file(path, 1 << 24), nullptr, false);
  if (!document.is_object()) throw Error(ErrorCode::kData, "not a JSON object", path);
  Fields fields(document, path);
  const json* type = fields.find("model_type");
  if (type == nullptr || !type->is_string()) fields.refuse("model_type", "is missing");

  HuggingFaceConfig config;
  config.model.family = type->get<std::string>();
  if (config.model.family == "llama" || config.model.family == "mixtral") {
    read_llama(fields, path, config);
  } else if (config.model.family == "gpt2") {
    read_gpt2(fields, path, config);
  } else {
    fields.refuse("model_type", fmt::format("is '{}'; llama, mixtral and gpt2 can be imported",
                                            config.model.family));
  }
  read_common(fields, config);
  fields.refuse_others();
  return config;
}

}  // namespace tessera
