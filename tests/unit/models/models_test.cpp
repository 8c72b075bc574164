// The model families: names, shapes, ties, sizes that are refused, and gradients of whole models.
#include <tessera/error.hpp>
#include <tessera/models.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "unit/autograd/tape.hpp"

using namespace tessera;
using namespace tessera::testing;

namespace {

ModelOptions tiny(const std::string& family, bool tied = false) {
  ModelOptions options;
  options.family = family;
  options.num_layers = 2;
  options.hidden_size = 16;
  options.num_heads = 4;
  options.num_kv_heads = family == "gpt2" ? 4 : 2;
  options.intermediate_size = 24;
  options.vocab_size = 11;
  options.max_seq_len = 8;
  options.tie_embeddings = tied;
  options.init_std = 0.3;
  return options;
}

MoeOptions tiny_moe() {
  MoeOptions moe;
  moe.num_experts = 4;
  moe.drop_tokens = false;
  moe.aux_loss_coef = 0.0;
  return moe;
}

std::vector<std::string> names_of(Model& model) {
  std::vector<std::string> names;
  for (const auto& parameter : model.parameters()) names.push_back(parameter->name);
  std::ranges::sort(names);
  return names;
}

/// Two sequences of five tokens; the first has two masked targets.
MicroBatch batch_of(Device& device, std::vector<std::int64_t> index = {4, 9},
                    bool swapped = false) {
  std::vector<std::int32_t> tokens{1, 7, 3, 3, 10, 0, 2, 9, 5, 4};
  std::vector<std::int32_t> targets{7, kIgnoreTarget, 3, 10, kIgnoreTarget, 2, 9, 5, 4, 8};
  if (swapped) {
    std::rotate(tokens.begin(), tokens.begin() + 5, tokens.end());
    std::rotate(targets.begin(), targets.begin() + 5, targets.end());
  }
  const auto upload = [&](const auto& values, Shape shape, DType dtype) {
    Tensor tensor(device, std::move(shape), dtype);
    std::memcpy(tensor.raw_data(), values.data(), tensor.bytes());
    return tensor;
  };
  MicroBatch batch;
  batch.tokens = upload(tokens, {2, 5}, DType::kI32);
  batch.targets = upload(targets, {2, 5}, DType::kI32);
  batch.sequence_index = upload(index, {2}, DType::kI64);
  batch.unmasked_tokens = 8;
  batch.routed_tokens = 10;
  return batch;
}

/// Sum of token losses, from the logits in FP64: smooth enough for finite differences.
double loss_from_logits(Rig& rig, Model& model, const MicroBatch& batch) {
  const NoGradScope no_grad(rig.context);
  const Variable logits = model.logits(batch.tokens);
  const auto values = rig.read(logits.tensor());
  const auto vocab = static_cast<std::size_t>(logits.size(2));
  double loss = 0.0;
  for (std::size_t row = 0; row < values.size() / vocab; ++row) {
    const std::int32_t target = batch.targets.data<std::int32_t>()[row];
    if (target < 0) continue;
    double sum = 0.0;
    for (std::size_t i = 0; i < vocab; ++i) sum += std::exp(double{values[row * vocab + i]});
    loss += std::log(sum) - double{values[row * vocab + static_cast<std::size_t>(target)]};
  }
  return loss;
}

std::vector<std::vector<float>> gradients_of(Rig& rig, Model& model, const MicroBatch& batch) {
  model.zero_grad();
  const Loss loss = model.loss(batch);
  std::vector<std::vector<float>> results{rig.read(loss.sum.tensor())};
  rig.context.backward(loss.sum, 1.0f);
  for (const auto& parameter : model.parameters()) results.push_back(rig.read(parameter->grad));
  return results;
}

}  // namespace

TEST_CASE("parameter names are Hugging Face's") {
  using Names = std::vector<std::string>;
  const auto llama = models::make(tiny("llama"));
  Names expected{"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* name :
         {"input_layernorm.weight", "mlp.down_proj.weight", "mlp.gate_proj.weight",
          "mlp.up_proj.weight", "post_attention_layernorm.weight", "self_attn.k_proj.weight",
          "self_attn.o_proj.weight", "self_attn.q_proj.weight", "self_attn.v_proj.weight"}) {
      expected.push_back(layer + name);
    }
  }
  std::ranges::sort(expected);
  CHECK(names_of(*llama) == expected);

  const auto gpt2 = models::make(tiny("gpt2", true));
  expected = {"transformer.wte.weight", "transformer.wpe.weight", "transformer.ln_f.weight",
              "transformer.ln_f.bias"};
  for (const std::string layer : {"transformer.h.0.", "transformer.h.1."}) {
    for (const char* name : {"attn.c_proj", "attn.k_proj", "attn.q_proj", "attn.v_proj", "ln_1",
                             "ln_2", "mlp.c_fc", "mlp.c_proj"}) {
      expected.push_back(layer + name + ".weight");
      expected.push_back(layer + name + ".bias");
    }
  }
  std::ranges::sort(expected);
  CHECK(names_of(*gpt2) == expected);

  const auto mixtral = models::make(tiny("mixtral"), tiny_moe());
  const Names names = names_of(*mixtral);
  CHECK(names.size() == 3 + 2 * (6 + 1 + 4 * 3));
  for (const char* name : {"gate.weight", "experts.0.w1.weight", "experts.3.w2.weight"}) {
    CHECK(
        std::ranges::binary_search(names, std::string("model.layers.1.block_sparse_moe.") + name));
  }
}

TEST_CASE("experts in every n-th block only") {
  MoeOptions moe = tiny_moe();
  moe.every_n_layers = 2;
  const auto model = models::make(tiny("llama"), moe);
  const auto names = names_of(*model);
  CHECK(std::ranges::binary_search(names, "model.layers.0.mlp.up_proj.weight"));
  CHECK(std::ranges::binary_search(names, "model.layers.1.block_sparse_moe.gate.weight"));
  CHECK_FALSE(std::ranges::binary_search(names, "model.layers.0.block_sparse_moe.gate.weight"));
}

TEST_CASE("a tied head is the embedding") {
  for (const char* family : {"llama", "gpt2"}) {
    const auto tied = models::make(tiny(family, true));
    const auto own = models::make(tiny(family));
    CHECK(tied->parameters().size() + 1 == own->parameters().size());
    std::shared_ptr<Parameter> head;
    for (const auto& [name, parameter] : tied->named_parameters()) {
      if (name == "lm_head.weight") head = parameter;
    }
    REQUIRE(head);
    CHECK(head->name ==
          (family == std::string("gpt2") ? "transformer.wte.weight" : "model.embed_tokens.weight"));
  }
}

TEST_CASE("only matrices decay") {
  for (const char* family : {"llama", "gpt2", "mixtral"}) {
    const auto model = family == std::string("mixtral") ? models::make(tiny(family), tiny_moe())
                                                        : models::make(tiny(family));
    for (const auto& parameter : model->parameters()) {
      INFO(parameter->name);
      CHECK(parameter->weight_decay == (parameter->shape.rank() == 2));
    }
  }
}

TEST_CASE("sizes that follow from others, and sizes that do not fit") {
  ModelOptions options = tiny("llama");
  options.num_kv_heads = 0;
  options.intermediate_size = 0;
  options.vocab_size = 0;
  const auto shape_of = [](Model& model, const std::string& name) {
    for (const auto& parameter : model.parameters()) {
      if (parameter->name == name) return parameter->shape;
    }
    return Shape{};
  };
  const auto llama = models::make(options);
  CHECK(shape_of(*llama, "model.layers.0.self_attn.k_proj.weight") == Shape{16, 16});
  CHECK(shape_of(*llama, "model.layers.0.mlp.up_proj.weight") == Shape{48, 16});
  CHECK(shape_of(*llama, "lm_head.weight") == Shape{256, 16});
  options.family = "gpt2";
  CHECK(shape_of(*models::make(options), "transformer.h.0.mlp.c_fc.weight") == Shape{64, 16});

  const auto refused = [](const std::string& family, auto change) {
    ModelOptions wrong = tiny(family);
    change(wrong);
    try {
      models::make(wrong);
    } catch (const Error& error) {
      return error.code() == ErrorCode::kUsage;
    }
    return false;
  };
  CHECK(refused("llama", [](auto& o) { o.hidden_size = 18; }));
  CHECK(refused("llama", [](auto& o) { o.num_heads = 0; }));
  CHECK(refused("llama", [](auto& o) { o.num_heads = -4; }));
  CHECK(refused("llama", [](auto& o) { o.num_kv_heads = 3; }));
  CHECK(refused("llama", [](auto& o) { o.num_kv_heads = -2; }));
  CHECK(refused("llama", [](auto& o) { o.hidden_size = 12; }));  // heads of 3
  CHECK(refused("llama", [](auto& o) { o.num_layers = 0; }));
  CHECK(refused("llama", [](auto& o) { o.hidden_size = 0; }));
  CHECK(refused("llama", [](auto& o) { o.intermediate_size = -1; }));
  CHECK(refused("llama", [](auto& o) { o.vocab_size = -1; }));
  CHECK(refused("gpt2", [](auto& o) { o.max_seq_len = 0; }));
  CHECK(refused("gpt2", [](auto& o) { o.num_kv_heads = 2; }));
  CHECK(refused("gptj", [](auto&) {}));
  CHECK_THROWS_AS(models::make(tiny("gpt2"), tiny_moe()), Error);
}

TEST_CASE("gradients of whole models agree with finite differences") {
  const std::string family = GENERATE("llama", "gpt2", "mixtral");
  const bool tied = GENERATE(false, true);
  INFO(family << (tied ? ", tied" : ""));
  Rig rig;
  const auto model = family == "mixtral" ? models::make(tiny(family, tied), tiny_moe())
                                         : models::make(tiny(family, tied));
  model->materialize(rig.context, 21);
  const MicroBatch batch = batch_of(*rig.device);
  const auto gradients = gradients_of(rig, *model, batch);
  CHECK(double{gradients[0][0]} == Approx(loss_from_logits(rig, *model, batch)).epsilon(1e-6));

  const auto parameters = model->parameters();
  // Central differences along a direction per parameter. Steps are small, so that no token changes
  // its experts.
  constexpr float kStep = 2e-3f;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Parameter& parameter = *parameters[p];
    if (parameter.name.ends_with("k_proj.bias")) continue;  // without effect
    INFO(parameter.name);
    const auto start = rig.read(parameter.value);
    const auto direction = [&](std::size_t i) {
      return normal_at(hash_name(parameter.name), i + 99);
    };
    double expected = 0.0;
    double scale = 0.0;
    for (std::size_t i = 0; i < start.size(); ++i) {
      const double term = double{gradients[p + 1][i]} * double{direction(i)};
      expected += term;
      scale += term * term;
    }
    const auto at = [&](float distance) {
      for (std::size_t i = 0; i < start.size(); ++i) {
        parameter.value.data<float>()[i] = start[i] + distance * direction(i);
      }
      return loss_from_logits(rig, *model, batch);
    };
    const double measured = (at(kStep) - at(-kStep)) / (2.0 * double{kStep});
    std::memcpy(parameter.value.raw_data(), start.data(), parameter.value.bytes());
    CHECK(std::abs(measured - expected) < 5e-3 * std::sqrt(scale) + 2e-3);
  }
}

TEST_CASE("activation checkpointing of blocks changes no bit") {
  const std::string family = GENERATE("llama", "gpt2", "mixtral");
  INFO(family);
  ModelOptions options = tiny(family);
  options.dropout = 0.2;
  Rig rig;
  const auto model =
      family == "mixtral" ? models::make(options, tiny_moe()) : models::make(options);
  model->materialize(rig.context, 21);
  const MicroBatch batch = batch_of(*rig.device);
  const auto reference = gradients_of(rig, *model, batch);
  model->set_activation_checkpointing(true);
  CHECK(gradients_of(rig, *model, batch) == reference);
}

TEST_CASE("dropout depends on the sequence, not on its row, and is off in evaluation") {
  const std::string family = GENERATE("llama", "gpt2");
  INFO(family);
  ModelOptions options = tiny(family);
  options.dropout = 0.3;
  Rig rig;
  const auto model = models::make(options);
  model->materialize(rig.context, 21);
  const auto loss = [&](const MicroBatch& batch) {
    const NoGradScope no_grad(rig.context);
    return model->loss(batch).sum.item();
  };
  const float first = loss(batch_of(*rig.device, {4, 9}));
  CHECK(loss(batch_of(*rig.device, {4, 9})) == first);
  CHECK(loss(batch_of(*rig.device, {9, 4}, true)) == Approx(first).epsilon(1e-6));
  CHECK(loss(batch_of(*rig.device, {5, 9})) != first);
  CHECK(loss(batch_of(*rig.device, {9, 4})) != Approx(first).epsilon(1e-4));
  rig.context.set_training(false);
  const float plain = loss(batch_of(*rig.device, {4, 9}));
  CHECK(plain != first);
  CHECK(loss(batch_of(*rig.device, {5, 8})) == plain);
}

TEST_CASE("logits after a micro batch of another size") {
  Rig rig;
  const auto model = models::make(tiny("mixtral"), tiny_moe());
  model->materialize(rig.context, 21);
  const MicroBatch batch = batch_of(*rig.device, {-1, 9});  // the first is padding
  const NoGradScope no_grad(rig.context);
  rig.context.set_training(false);
  const auto reference = rig.read(model->logits(batch.tokens).tensor());
  model->loss(batch);
  CHECK(rig.read(model->logits(batch.tokens).tensor()) == reference);
  const auto one = rig.read(model->logits(batch.tokens.rows(1, 2)).tensor());
  for (std::size_t i = 0; i < one.size(); ++i) {
    CHECK(one[i] == Approx(reference[one.size() + i]).margin(1e-5));
  }
}
