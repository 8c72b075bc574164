// A model, a layer and an operator of your own, trained with ZeRO-3 by the same engine.
//
//   custom_model examples/configs/dense_tiny.yaml --ranks 2
#include <tessera/tessera.hpp>

#include <algorithm>
#include <cstdio>

namespace ts = tessera;

// An operator: y = max(x, 0)². Work goes to the context's stream; backward writes where it is told.
ts::Variable squared_relu(const ts::Variable& x) {
  ts::Context& context = x.context();
  const ts::Tensor in = x.tensor();
  const ts::Tensor out(context.device(), in.shape(), in.dtype());
  context.stream().enqueue([in, out] {
    for (std::int64_t i = 0; i < in.elements(); ++i) {
      const float positive = std::max(in.data<float>()[i], 0.0f);
      out.data<float>()[i] = positive * positive;
    }
  });
  return context.record("squared_relu", {x}, out, [in](ts::BackwardScope& scope) {
    const ts::Tensor dy = scope.grad_output();
    const ts::GradTarget dx = scope.target(0);
    scope.context().stream().enqueue([in, dy, dx] {
      const float* const x_values = in.data<float>();
      const float* const dy_values = dy.data<float>();
      float* const dx_values = dx.tensor.data<float>();
      for (std::int64_t i = 0; i < in.elements(); ++i) {
        const float value = 2.0f * std::max(x_values[i], 0.0f) * dy_values[i];
        dx_values[i] = dx.accumulate ? dx_values[i] + value : value;
      }
    });
  });
}

// A layer: a residual MLP over causal attention. As a unit, it is gathered only while it is used.
class Block final : public ts::Layer {
 public:
  explicit Block(const ts::ModelOptions& m) {
    ts::nn::AttentionOptions options;
    options.hidden_size = m.hidden_size;
    options.num_heads = m.num_heads;
    options.num_kv_heads = m.num_heads;
    norm_ = register_module("norm", std::make_shared<ts::nn::RMSNorm>(m.hidden_size, 1e-5));
    attention_ = register_module("attention", std::make_shared<ts::nn::Attention>(options));
    up_ = register_module(
        "up", std::make_shared<ts::nn::Linear>(m.hidden_size, 2 * m.hidden_size, true, 0.02f));
    down_ = register_module(
        "down", std::make_shared<ts::nn::Linear>(2 * m.hidden_size, m.hidden_size, true, 0.02f));
    set_unit();
  }

 protected:
  ts::Variable forward(const ts::Variable& x) override {
    const ts::Variable h = ts::ops::add(x, (*attention_)((*norm_)(x)));
    return ts::ops::add(h, (*down_)(squared_relu((*up_)(h))));
  }

 private:
  std::shared_ptr<ts::nn::RMSNorm> norm_;
  std::shared_ptr<ts::nn::Attention> attention_;
  std::shared_ptr<ts::nn::Linear> up_, down_;
};

// The model: two such blocks between an embedding and a head.
class TwoBlocks final : public ts::Model {
 public:
  explicit TwoBlocks(const ts::ModelOptions& m) {
    const int vocab = m.vocab_size > 0 ? m.vocab_size : ts::tokenizer_vocab_size(m.tokenizer);
    embedding_ = register_module("embedding",
                                 std::make_shared<ts::nn::Embedding>(vocab, m.hidden_size, 0.02f));
    first_ = register_module("first", std::make_shared<Block>(m));
    second_ = register_module("second", std::make_shared<Block>(m));
    head_ = register_module("head",
                            std::make_shared<ts::nn::Linear>(m.hidden_size, vocab, false, 0.02f));
  }

 protected:
  ts::Variable forward(const ts::Tensor& tokens) override {
    return (*head_)((*second_)((*first_)((*embedding_)(tokens))));
  }

 private:
  std::shared_ptr<ts::nn::Embedding> embedding_;
  std::shared_ptr<Block> first_, second_;
  std::shared_ptr<ts::nn::Linear> head_;
};

int main(int argc, char** argv) {
  return ts::run(argc, argv, [](ts::World& world, const ts::Config& config) {
    TwoBlocks model(config.model);
    ts::Engine engine(world, model, config);
    ts::DataLoader data(config, world);
    while (engine.step() < config.trainer.max_steps) {
      const ts::StepData step = data.next_step();
      engine.begin_step(step.counts());
      for (const ts::MicroBatch& micro : step) engine.backward(model.loss(micro));
      const ts::StepResult result = engine.apply();
      if (world.rank() == 0) {
        std::printf("step %lld loss %.4f\n", static_cast<long long>(result.step), result.loss);
      }
    }
  });
}
