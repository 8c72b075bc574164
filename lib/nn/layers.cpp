#include <tessera/nn.hpp>

namespace tessera::nn {

Linear::Linear(std::int64_t in, std::int64_t out, bool with_bias, float init_std)
    : weight(register_parameter("weight", {out, in}, Init::normal(init_std))) {
  if (with_bias) bias = register_parameter("bias", {out}, Init::zeros(), false);
}

Variable Linear::forward(const Variable& input) {
  return ops::linear(input, weight, bias ? Variable(bias) : Variable());
}

Embedding::Embedding(std::int64_t vocab, std::int64_t hidden, float init_std)
    : weight(register_parameter("weight", {vocab, hidden}, Init::normal(init_std))) {}

Variable Embedding::operator()(const Tensor& tokens) {
  const UnitScope scope(*this);
  return ops::embedding(tokens, weight);
}

RMSNorm::RMSNorm(std::int64_t size, double eps)
    : weight(register_parameter("weight", {size}, Init::ones(), false)),
      eps_(static_cast<float>(eps)) {}

Variable RMSNorm::forward(const Variable& input) { return ops::rms_norm(input, weight, eps_); }

LayerNorm::LayerNorm(std::int64_t size, double eps)
    : weight(register_parameter("weight", {size}, Init::ones(), false)),
      bias(register_parameter("bias", {size}, Init::zeros(), false)),
      eps_(static_cast<float>(eps)) {}

Variable LayerNorm::forward(const Variable& input) {
  return ops::layer_norm(input, weight, bias, eps_);
}

Attention::Attention(const AttentionOptions& options) : options_(options) {
  const std::int64_t head = options.hidden_size / options.num_heads;
  const std::int64_t query = head * options.num_heads;
  const std::int64_t shared = head * options.num_kv_heads;
  const auto make = [&](const std::string& name, std::int64_t in, std::int64_t out, float std) {
    return register_module(name, std::make_shared<Linear>(in, out, options.bias, std));
  };
  q_proj = make(options.q, options.hidden_size, query, options.init_std);
  k_proj = make(options.k, options.hidden_size, shared, options.init_std);
  v_proj = make(options.v, options.hidden_size, shared, options.init_std);
  o_proj = make(options.o, query, options.hidden_size, options.output_init_std);
}

Variable Attention::forward(const Variable& input) {
  const std::int64_t batch = input.size(0);
  const std::int64_t time = input.size(1);
  const std::int64_t head = options_.hidden_size / options_.num_heads;
  const auto heads = [&](Linear& projection, int count) {
    return ops::reshape(projection(input), {batch, time, count, head});
  };
  Variable q = heads(*q_proj, options_.num_heads);
  Variable k = heads(*k_proj, options_.num_kv_heads);
  const Variable v = heads(*v_proj, options_.num_kv_heads);
  if (options_.rope_theta > 0.0) {
    q = ops::rope(q, options_.rope_theta);
    k = ops::rope(k, options_.rope_theta);
  }
  return (*o_proj)(ops::reshape(ops::attention(q, k, v), {batch, time, head * options_.num_heads}));
}

GatedMLP::GatedMLP(std::int64_t hidden, std::int64_t intermediate, float init_std,
                   float output_init_std)
    : gate_proj(register_module("gate_proj",
                                std::make_shared<Linear>(hidden, intermediate, false, init_std))),
      up_proj(register_module("up_proj",
                              std::make_shared<Linear>(hidden, intermediate, false, init_std))),
      down_proj(register_module(
          "down_proj", std::make_shared<Linear>(intermediate, hidden, false, output_init_std))) {}

Variable GatedMLP::forward(const Variable& input) {
  return (*down_proj)(ops::swiglu((*gate_proj)(input), (*up_proj)(input)));
}

}  // namespace tessera::nn
