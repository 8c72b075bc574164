// Import of Hugging Face directories: every way in which a file can be something else than what is
// computed must be seen, named, and refused.
#include <tessera/error.hpp>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/half.hpp"
#include "golden/golden_model.hpp"
#include "support/temporary_directory.hpp"

using namespace tessera;
using namespace tessera::testing;
using nlohmann::json;

namespace {

json config_of(const std::string& name) {
  return json::parse(Env::posix().read_file(golden_directory(name) + "/config.json"));
}

void write_config(const TemporaryDirectory& directory, const json& config) {
  Env::posix().write_file_atomically(directory / "config.json", config.dump());
}

/// Reads a golden configuration with a change.
HuggingFaceConfig read_changed(const std::string& name, const std::function<void(json&)>& change) {
  const TemporaryDirectory directory;
  json config = config_of(name);
  change(config);
  write_config(directory, config);
  return read_hugging_face_config(directory.path());
}

/// The message of the Error{kData} that `action` raises, context included.
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code() == ErrorCode::kData ? error.what() : "another code";
  }
  return "not refused";
}

std::string config_refusal(const std::string& name, const std::function<void(json&)>& change) {
  return refusal([&] { read_changed(name, change); });
}

/// The tensors of a file in memory, to be changed and written again.
struct Weights {
  struct Value {
    DType dtype = DType::kF32;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> data;
  };
  std::map<std::string, Value> tensors;

  explicit Weights(const std::string& name) {
    const auto file =
        SafetensorsFile::open(Env::posix(), golden_directory(name) + "/model.safetensors");
    for (const SafetensorsEntry& entry : file.entries()) {
      Value& value = tensors[entry.name];
      value.shape = entry.shape;
      value.data.resize(entry.bytes());
      file.read(entry.name, value.data);
    }
  }

  void rename(const std::string& from, const std::string& to) {
    auto node = tensors.extract(from);
    node.key() = to;
    tensors.insert(std::move(node));
  }

  void write(
      const std::string& path, const std::function<bool(const std::string&)>& wanted =
                                   [](const std::string&) { return true; }) const {
    std::vector<SafetensorsTensor> list;
    for (const auto& [name, value] : tensors) {
      if (wanted(name)) list.push_back({{name, value.dtype, value.shape}, value.data});
    }
    write_safetensors(Env::posix(), path, list);
  }
};

/// All parameters of a directory's model, as loaded.
std::map<std::string, std::vector<float>> load(const std::string& directory) {
  const auto config = read_hugging_face_config(directory);
  const auto device = make_cpu_device({.poison = true});
  Context context(*device);
  const auto model = models::make(config.model, config.moe);
  model->materialize(context, 1);
  load_hugging_face(directory, *model);
  std::map<std::string, std::vector<float>> values;
  for (const auto& parameter : model->parameters()) {
    const auto* data = parameter->value.data<float>();
    values[parameter->name].assign(data, data + parameter->value.elements());
  }
  return values;
}

/// Writes a changed golden model into a directory and loads it.
std::map<std::string, std::vector<float>> load_changed(
    const std::string& name, const std::function<void(Weights&, json&)>& change) {
  const TemporaryDirectory directory;
  Weights weights(name);
  json config = config_of(name);
  change(weights, config);
  write_config(directory, config);
  weights.write(directory / "model.safetensors");
  return load(directory.path());
}

std::string weights_refusal(const std::string& name,
                            const std::function<void(Weights&, json&)>& change) {
  return refusal([&] { load_changed(name, change); });
}

const std::string kEmbedding = "model.embed_tokens.weight";
const std::string kHead = "lm_head.weight";

}  // namespace

TEST_CASE("every field that changes the result arrives") {
  const auto llama = read_hugging_face_config(golden_directory("llama"));
  CHECK(llama.model.family == "llama");
  CHECK(llama.model.num_layers == 2);
  CHECK(llama.model.hidden_size == 32);
  CHECK(llama.model.num_heads == 4);
  CHECK(llama.model.num_kv_heads == 2);
  CHECK(llama.model.intermediate_size == 48);
  CHECK(llama.model.vocab_size == 101);
  CHECK(llama.model.max_seq_len == 32);
  CHECK(llama.model.rope_theta == 5000.0);
  CHECK(llama.model.norm_eps == 2e-5);
  CHECK_FALSE(llama.model.tie_embeddings);
  CHECK_FALSE(llama.moe);
  CHECK(llama.warnings.empty());

  const auto tied = read_hugging_face_config(golden_directory("llama_tied"));
  CHECK(tied.model.rope_theta == 700.0);
  CHECK(tied.model.norm_eps == 3e-4);
  CHECK(tied.model.tie_embeddings);

  const auto gpt2 = read_hugging_face_config(golden_directory("gpt2"));
  CHECK(gpt2.model.family == "gpt2");
  CHECK(gpt2.model.intermediate_size == 80);
  CHECK(gpt2.model.max_seq_len == 24);
  CHECK(gpt2.model.norm_eps == 4e-5);
  CHECK(gpt2.model.tie_embeddings);
  CHECK(gpt2.model.dropout == 0.0);

  const auto mixtral = read_hugging_face_config(golden_directory("mixtral"));
  CHECK(mixtral.model.rope_theta == 2000.0);
  REQUIRE(mixtral.moe);
  CHECK(mixtral.moe->num_experts == 4);
  CHECK(mixtral.moe->top_k == 2);
  CHECK_FALSE(mixtral.moe->drop_tokens);
  CHECK(mixtral.moe->aux_loss_coef == 0.0);
}

TEST_CASE("absent fields have the value that transformers gives them") {
  const auto llama = read_changed("llama_tied", [](json& config) {
    for (const char* key :
         {"rope_theta", "num_key_value_heads", "rms_norm_eps", "head_dim", "tie_word_embeddings"}) {
      config.erase(key);
    }
  });
  CHECK(llama.model.rope_theta == 10000.0);
  REQUIRE(llama.warnings.size() == 1);
  CHECK(llama.warnings[0].find("rope_theta") != std::string::npos);
  CHECK(llama.model.num_kv_heads == 4);
  CHECK(llama.model.norm_eps == 1e-6);
  CHECK_FALSE(llama.model.tie_embeddings);

  const auto gpt2 = read_changed("gpt2", [](json& config) {
    config["n_inner"] = nullptr;
    for (const char* key : {"tie_word_embeddings", "resid_pdrop", "embd_pdrop"}) config.erase(key);
    config["attn_pdrop"] = 0.1;
  });
  CHECK(gpt2.model.intermediate_size == 128);
  CHECK(gpt2.model.tie_embeddings);
  CHECK(gpt2.model.dropout == 0.1);
  REQUIRE(gpt2.warnings.size() == 1);
  CHECK(gpt2.warnings[0].find("attn_pdrop") != std::string::npos);

  CHECK(read_changed("mixtral", [](json& config) {
          config.erase("rope_theta");
        }).model.rope_theta == 1e6);
  CHECK(read_changed("mixtral", [](json& config) {
          config["output_router_logits"] = true;
          config["router_aux_loss_coef"] = 0.02;
        }).moe->aux_loss_coef == 0.02);
}

TEST_CASE("fields that would change the result are refused by name") {
  struct Case {
    std::string model;
    std::string field;
    json value;
  };
  const auto test = GENERATE(values<Case>({
      {"llama", "rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
      {"llama", "rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}},
      {"llama", "rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 5000.0}}},
      {"llama", "rope_parameters", {{"rope_theta", 5000.0}, {"factor", 2.0}}},
      {"llama", "rope_theta", 6000.0},  // rope_parameters says 5000
      {"llama", "partial_rotary_factor", 0.5},
      {"llama", "attention_bias", true},
      {"llama", "mlp_bias", true},
      {"llama", "hidden_act", "gelu"},
      {"llama", "head_dim", 16},
      {"llama", "sliding_window", 16},
      {"llama", "hidden_size", "32"},
      {"llama", "hidden_size", -32},
      {"llama", "num_hidden_layers", 2.5},
      {"llama", "rms_norm_eps", "1e-5"},
      {"llama", "tie_word_embeddings", 1},
      {"llama", "num_key_value_head", 2},  // misspelt
      {"llama", "quantization_config", {{"bits", 4}}},
      {"llama", "logits_soft_cap", 30.0},
      {"llama", "model_type", "mistral"},
      {"llama", "vocab_size", nullptr},
      {"mixtral", "sliding_window", 16},
      {"mixtral", "router_jitter_noise", 0.1},
      {"mixtral", "norm_topk_prob", false},
      {"mixtral", "num_key_value_heads", nullptr},
      {"mixtral", "num_local_experts", 0},
      {"gpt2", "activation_function", "gelu"},
      {"gpt2", "activation_function", "relu"},
      {"gpt2", "scale_attn_weights", false},
      {"gpt2", "scale_attn_by_inverse_layer_idx", true},
      {"gpt2", "reorder_and_upcast_attn", true},
      {"gpt2", "add_cross_attention", true},
      {"gpt2", "embd_pdrop", 0.2},
      {"gpt2", "n_ctx", 12},
  }));
  INFO(test.model << ": " << test.field << " = " << test.value.dump());
  const std::string message =
      config_refusal(test.model, [&](json& config) { config[test.field] = test.value; });
  INFO(message);
  CHECK(message.find(test.field) != std::string::npos);
  CHECK(message.find("config.json") != std::string::npos);
}

TEST_CASE("fields at the value that is computed anyway are accepted") {
  const auto config = read_changed("llama", [](json& fields) {
    fields["rope_scaling"] = {{"type", "default"}};
    fields["rope_theta"] = 5000;
    fields["sliding_window"] = 32;
    fields["partial_rotary_factor"] = 1;
    fields["attention_bias"] = nullptr;
  });
  CHECK(config.model.rope_theta == 5000.0);
  CHECK(config.warnings.empty());
  CHECK_NOTHROW(read_changed("mixtral", [](json& fields) { fields["sliding_window"] = 4096; }));
}

TEST_CASE("a configuration that is no JSON object, or is not there, is refused") {
  const TemporaryDirectory directory;
  const auto read = [&] { read_hugging_face_config(directory.path()); };
  CHECK(refusal(read).find("config.json") != std::string::npos);
  for (const char* text : {"", "[]", "{\"hidden_size\": 3", "null"}) {
    Env::posix().write_file_atomically(directory / "config.json", text);
    CHECK(refusal(read).find("not a JSON object") != std::string::npos);
  }
}

TEST_CASE("GPT-2's tensors are found under their names, transposed where they are") {
  CHECK(stored_name("gpt2", "transformer.h.1.attn.k_proj.weight") ==
        StoredName{"transformer.h.1.attn.c_attn.weight", true, 1, 3});
  CHECK(stored_name("gpt2", "transformer.h.1.attn.v_proj.bias") ==
        StoredName{"transformer.h.1.attn.c_attn.bias", false, 2, 3});
  CHECK(stored_name("gpt2", "transformer.h.0.attn.c_proj.weight") ==
        StoredName{"transformer.h.0.attn.c_proj.weight", true});
  CHECK(stored_name("gpt2", "transformer.h.0.mlp.c_fc.bias") ==
        StoredName{"transformer.h.0.mlp.c_fc.bias"});
  CHECK(stored_name("gpt2", "transformer.wte.weight") == StoredName{"transformer.wte.weight"});
  CHECK(stored_name("llama", "model.layers.0.self_attn.q_proj.weight") ==
        StoredName{"model.layers.0.self_attn.q_proj.weight"});
}

TEST_CASE("any range of a parameter equals that part of the whole") {
  const std::string name = GENERATE("gpt2", "llama", "mixtral");
  const GoldenModel golden(name);
  const auto model = golden.make();
  const HuggingFaceWeights weights(Env::posix(), golden.directory, golden.config, *model);
  for (const auto& parameter : model->parameters()) {
    const std::int64_t elements = parameter->shape.elements();
    std::vector<float> whole(static_cast<std::size_t>(elements));
    weights.read(parameter->name, 0, elements, whole.data());
    for (const std::int64_t size :
         {std::int64_t{1}, std::int64_t{7}, std::int64_t{100}, elements}) {
      // Pieces of that size at a few places, the last of them at the very end.
      for (std::int64_t begin = 0; begin + size <= elements;
           begin += std::max<std::int64_t>(1, (elements - size) / 3)) {
        std::vector<float> piece(static_cast<std::size_t>(size) + 1, -77.0f);
        weights.read(parameter->name, begin, size, piece.data());
        const bool equal = std::equal(piece.begin(), piece.end() - 1, whole.begin() + begin);
        if (!equal || piece.back() != -77.0f) FAIL(parameter->name << " from " << begin);
      }
    }
    weights.read(parameter->name, elements, 0, nullptr);
  }
}

TEST_CASE("tied embeddings: flag and tensors must agree") {
  const auto reference = load(golden_directory("llama_tied"));
  const auto with_head = [](Weights& weights) {
    weights.tensors[kHead] = weights.tensors[kEmbedding];
  };
  const auto tie = [](json& config, bool tied) { config["tie_word_embeddings"] = tied; };

  SECTION("tied: either name alone, or both with equal values") {
    CHECK(load_changed("llama_tied", [&](Weights& weights, json&) { with_head(weights); }) ==
          reference);
    CHECK(load_changed("llama_tied", [&](Weights& weights, json&) {
            weights.rename(kEmbedding, kHead);
          }) == reference);
  }
  SECTION("tied, both stored with different values") {
    const auto message = weights_refusal("llama_tied", [&](Weights& weights, json&) {
      with_head(weights);
      weights.tensors[kHead].data[5] ^= std::byte{1};
    });
    CHECK(message.find(kHead) != std::string::npos);
    CHECK(message.find("differ") != std::string::npos);
  }
  SECTION("tied, neither stored") {
    const auto message = weights_refusal(
        "llama_tied", [&](Weights& weights, json&) { weights.tensors.erase(kEmbedding); });
    CHECK(message.find(kEmbedding) != std::string::npos);
  }
  SECTION("not tied: both are needed, equal or not") {
    CHECK(weights_refusal("llama_tied", [&](Weights&, json& config) {
            tie(config, false);
          }).find("tie_word_embeddings is false") != std::string::npos);
    const auto loaded = load_changed("llama_tied", [&](Weights& weights, json& config) {
      with_head(weights);
      tie(config, false);
    });
    CHECK(loaded.at(kHead) == loaded.at(kEmbedding));
    CHECK(weights_refusal("llama", [](Weights& weights, json&) {
            weights.tensors.erase(kEmbedding);
          }).find(kEmbedding) != std::string::npos);
  }
  SECTION("a tied flag with an output head of its own") {
    CHECK(weights_refusal("llama", [&](Weights&, json& config) {
            tie(config, true);
          }).find("differ") != std::string::npos);
  }
  SECTION("a model made otherwise than the directory says") {
    GoldenModel golden("llama_tied");
    golden.config.model.tie_embeddings = false;
    const auto model = golden.make();
    CHECK(refusal([&] {
            const HuggingFaceWeights weights(Env::posix(), golden.directory,
                                             read_hugging_face_config(golden.directory), *model);
          }).find("tie_word_embeddings") != std::string::npos);
  }
}

TEST_CASE("files that do not fit the model are refused, naming the tensor") {
  const auto expect = [](const std::string& message, const std::string& tensor) {
    INFO(message);
    CHECK(message.find("'" + tensor + "'") != std::string::npos);
  };
  const std::string norm = "model.layers.1.input_layernorm.weight";
  expect(weights_refusal("llama", [&](Weights& w, json&) { w.tensors.erase(norm); }), norm);
  expect(weights_refusal("llama", [&](Weights& w, json&) { w.rename(norm, norm + "s"); }), norm);
  expect(
      weights_refusal("llama", [&](Weights& w, json&) { w.tensors[norm + "s"] = w.tensors[norm]; }),
      norm + "s");
  expect(weights_refusal("llama",
                         [&](Weights& w, json&) {
                           w.tensors[norm].shape = {1, 32};
                         }),
         norm);
  expect(weights_refusal("llama", [&](Weights& w, json&) { w.tensors[norm].dtype = DType::kI32; }),
         norm);
  // A layer more in the file than in the configuration.
  expect(weights_refusal("llama", [&](Weights&, json& config) { config["num_hidden_layers"] = 1; }),
         norm);
  // GPT-2: a weight that was already transposed by someone else. A square one cannot be told apart.
  const std::string fc = "transformer.h.0.mlp.c_fc.weight";
  expect(weights_refusal("gpt2", [&](Weights& w, json&) { w.tensors[fc].shape = {80, 32}; }), fc);
  const std::string fused = "transformer.h.1.attn.c_attn.bias";
  expect(weights_refusal("gpt2", [&](Weights& w, json&) { w.tensors.erase(fused); }), fused);
  const std::string expert = "model.layers.1.block_sparse_moe.experts.3.w3.weight";
  expect(weights_refusal("mixtral", [&](Weights& w, json&) { w.tensors.erase(expert); }), expert);
}

TEST_CASE("names without the trunk's, and known buffers, are accepted") {
  const auto reference = load(golden_directory("gpt2"));
  const auto loaded = load_changed("gpt2", [](Weights& weights, json&) {
    std::vector<std::string> names;
    for (const auto& [name, value] : weights.tensors) names.push_back(name);
    for (const std::string& name : names) {
      weights.rename(name, name.substr(std::string("transformer.").size()));
    }
    Weights::Value buffer{DType::kU8, {1, 1, 24, 24}, std::vector<std::byte>(24 * 24)};
    weights.tensors["h.0.attn.bias"] = buffer;
    weights.tensors["h.0.attn.masked_bias"] = {DType::kF32, {}, std::vector<std::byte>(4)};
  });
  CHECK(loaded == reference);
  CHECK(is_known_buffer("model.layers.0.self_attn.rotary_emb.inv_freq"));
  CHECK_FALSE(is_known_buffer("transformer.h.0.attn.c_attn.bias"));
}

TEST_CASE("weights in several files with an index") {
  const TemporaryDirectory directory;
  Weights weights("llama");
  write_config(directory, config_of("llama"));
  json map;
  const auto second = [](const std::string& name) { return name.find(".1.") != std::string::npos; };
  for (const auto& [name, value] : weights.tensors) {
    map[name] = second(name) ? "b.safetensors" : "a.safetensors";
  }
  const auto write_index = [&] {
    Env::posix().write_file_atomically(directory / "model.safetensors.index.json",
                                       json{{"weight_map", map}}.dump());
  };
  write_index();
  weights.write(directory / "a.safetensors", [&](const auto& name) { return !second(name); });
  weights.write(directory / "b.safetensors", second);
  CHECK(load(directory.path()) == load(golden_directory("llama")));

  SECTION("the index promises a tensor that its file has not") {
    map[kHead] = "b.safetensors";
    write_index();
    CHECK(refusal([&] { load(directory.path()); }).find(kHead) != std::string::npos);
  }
  SECTION("a tensor in two files") {
    weights.write(directory / "b.safetensors",
                  [&](const auto& name) { return second(name) || name == kHead; });
    CHECK(refusal([&] { load(directory.path()); }).find("two files") != std::string::npos);
  }
  SECTION("a file name that leads elsewhere") {
    map[kHead] = "../a.safetensors";
    write_index();
    CHECK(refusal([&] { load(directory.path()); }).find(kHead) != std::string::npos);
  }
}

TEST_CASE("half and double precision weights are converted") {
  const auto reference = load(golden_directory("gpt2"));
  const auto convert = [](const Weights::Value& value, DType dtype) {
    Weights::Value result{dtype, value.shape, {}};
    for (std::size_t at = 0; at < value.data.size(); at += sizeof(float)) {
      float element = 0.0f;
      std::memcpy(&element, value.data.data() + at, sizeof(element));
      const auto append = [&](auto converted) {
        const auto* bytes = reinterpret_cast<const std::byte*>(&converted);
        result.data.insert(result.data.end(), bytes, bytes + sizeof(converted));
      };
      if (dtype == DType::kF64) append(static_cast<double>(element));
      if (dtype == DType::kBF16) append(BF16(element));
      if (dtype == DType::kF16) append(F16(element));
    }
    return result;
  };
  const auto dtype = GENERATE(DType::kF64, DType::kBF16, DType::kF16);
  const auto loaded = load_changed("gpt2", [&](Weights& weights, json&) {
    for (auto& [name, value] : weights.tensors) value = convert(value, dtype);
  });
  for (const auto& [name, values] : reference) {
    INFO(name);
    std::vector<float> expected = values;
    for (float& value : expected) {
      if (dtype == DType::kBF16) value = static_cast<float>(BF16(value));
      if (dtype == DType::kF16) value = static_cast<float>(F16(value));
    }
    CHECK(loaded.at(name) == expected);
  }
}
