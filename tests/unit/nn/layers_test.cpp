// The layers: names and shapes of their parameters, and gradients against finite differences.
#include <tessera/nn.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "unit/autograd/tape.hpp"

using namespace tessera;
using namespace tessera::testing;

namespace {

constexpr double kTolerance = 2e-3;  // of central differences in FP32

/// "name [shape]" of each parameter, marked where it does not decay.
std::vector<std::string> described(Module& module) {
  std::vector<std::string> lines;
  for (const auto& parameter : module.parameters()) {
    lines.push_back(parameter->name + " " + parameter->shape.to_string() +
                    (parameter->weight_decay ? "" : " no decay"));
  }
  return lines;
}

/// Largest relative difference between backward and finite differences, for all parameters and the
/// input.
double layer_error(Rig& rig, Layer& layer, const Shape& input) {
  layer.materialize(rig.context, 3);
  for (const auto& parameter : layer.parameters()) {
    // Away from ones and zeros.
    for (std::int64_t i = 0; i < parameter->value.elements(); ++i) {
      parameter->value.data<float>()[i] +=
          0.2f * normal_at(hash_name(parameter->name), static_cast<std::uint64_t>(i));
    }
  }
  auto all = layer.parameters();
  const auto x = rig.parameter("x", input, 1.0f);
  all.push_back(x);
  return rig.gradient_error(all, [&] { return layer(ops::reshape(x, input)); });
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("linear") {
  Rig rig;
  nn::Linear with_bias(5, 3, true, 0.4f);
  CHECK(described(with_bias) == Lines{"weight [3, 5]", "bias [3] no decay"});
  CHECK(layer_error(rig, with_bias, {2, 4, 5}) < kTolerance);
  nn::Linear plain(5, 3, false, 0.4f);
  CHECK(described(plain) == Lines{"weight [3, 5]"});
  CHECK(layer_error(rig, plain, {7, 5}) < kTolerance);
}

TEST_CASE("norms") {
  Rig rig;
  nn::RMSNorm rms(6, 1e-3);
  CHECK(described(rms) == Lines{"weight [6] no decay"});
  CHECK(layer_error(rig, rms, {5, 6}) < kTolerance);
  nn::LayerNorm layer(6, 1e-3);
  CHECK(described(layer) == Lines{"weight [6] no decay", "bias [6] no decay"});
  CHECK(layer_error(rig, layer, {2, 5, 6}) < kTolerance);
}

TEST_CASE("gated MLP") {
  Rig rig;
  nn::GatedMLP mlp(6, 10, 0.4f, 0.4f);
  CHECK(described(mlp) ==
        Lines{"gate_proj.weight [10, 6]", "up_proj.weight [10, 6]", "down_proj.weight [6, 10]"});
  CHECK(layer_error(rig, mlp, {2, 5, 6}) < kTolerance);
}

TEST_CASE("attention with shared key heads, rotary positions and biases") {
  Rig rig;
  nn::AttentionOptions options;
  options.hidden_size = 16;
  options.num_heads = 4;
  options.num_kv_heads = 2;
  options.rope_theta = 50.0;
  options.init_std = 0.3f;
  nn::Attention attention(options);
  CHECK(described(attention) == Lines{"q_proj.weight [16, 16]", "k_proj.weight [8, 16]",
                                      "v_proj.weight [8, 16]", "o_proj.weight [16, 16]"});
  CHECK(layer_error(rig, attention, {2, 5, 16}) < kTolerance);

  options.rope_theta = 0.0;
  options.num_kv_heads = 4;
  options.bias = true;
  options.o = "c_proj";
  nn::Attention biased(options);
  CHECK(described(biased) == Lines{"q_proj.weight [16, 16]", "q_proj.bias [16] no decay",
                                   "k_proj.weight [16, 16]", "k_proj.bias [16] no decay",
                                   "v_proj.weight [16, 16]", "v_proj.bias [16] no decay",
                                   "c_proj.weight [16, 16]", "c_proj.bias [16] no decay"});
  // A key bias has no effect, so its difference is noise on noise.
  biased.k_proj->bias->trainable = false;
  biased.materialize(rig.context, 3);
  std::vector<std::shared_ptr<Parameter>> all;
  for (const auto& parameter : biased.parameters()) {
    if (parameter->trainable) all.push_back(parameter);
  }
  const auto x = rig.parameter("x", {2, 5, 16}, 1.0f);
  all.push_back(x);
  CHECK(rig.gradient_error(all, [&] { return biased(ops::reshape(x, x->shape)); }) < kTolerance);
}

TEST_CASE("attention sees only what came before") {
  Rig rig;
  nn::AttentionOptions options;
  options.hidden_size = 8;
  options.num_heads = 2;
  options.num_kv_heads = 1;
  options.init_std = 0.5f;
  options.output_init_std = 0.5f;
  nn::Attention attention(options);
  attention.materialize(rig.context, 3);
  const auto x = rig.parameter("x", {1, 6, 8}, 1.0f);
  const NoGradScope no_grad(rig.context);
  const auto before = rig.read(attention(x).tensor());
  for (int i = 0; i < 8; ++i) x->value.data<float>()[3 * 8 + i] += 1.0f;
  const auto after = rig.read(attention(x).tensor());
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (i < 3 * 8) {
      CHECK(before[i] == after[i]);
    } else {
      CHECK(before[i] != after[i]);
    }
  }
}

TEST_CASE("embedding adds up the gradients of equal tokens") {
  Rig rig;
  nn::Embedding embedding(6, 4, 0.5f);
  embedding.materialize(rig.context, 3);
  Tensor tokens(*rig.device, {2, 2}, DType::kI32);
  const std::int32_t ids[] = {5, 0, 5, 5};
  std::memcpy(tokens.raw_data(), ids, sizeof(ids));
  const Variable rows = embedding(tokens);
  CHECK(rows.shape() == Shape{2, 2, 4});
  const auto table = rig.read(embedding.weight->value);
  const auto values = rig.read(rows.tensor());
  for (std::size_t i = 0; i < 16; ++i) {
    CHECK(values[i] == table[static_cast<std::size_t>(ids[i / 4]) * 4 + i % 4]);
  }
  rig.context.backward(rows, 1.0f);
  const auto gradient = rig.read(embedding.weight->grad);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    CHECK(gradient[i] == (i / 4 == 5 ? 3.0f : i / 4 == 0 ? 1.0f : 0.0f));
  }
}
