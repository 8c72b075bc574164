// The output head: logits from hidden states, with a weight of its own or the embedding's.
#pragma once

#include <tessera/nn.hpp>

#include <memory>

namespace tessera::models {

/// logits = x · weightᵀ. A sharding unit of its own.
class Head final : public Layer {
 public:
  /// A weight of its own [vocab, hidden].
  Head(std::int64_t vocab, std::int64_t hidden, float init_std)
      : weight_(register_parameter("weight", {vocab, hidden}, Init::normal(init_std))) {
    set_unit();
  }
  /// Tied to another module's weight.
  explicit Head(const std::shared_ptr<Parameter>& weight) : weight_(weight) {
    register_tied("weight", weight);
    set_unit();
  }

 protected:
  Variable forward(const Variable& input) override { return ops::linear(input, weight_); }

 private:
  std::shared_ptr<Parameter> weight_;
};

}  // namespace tessera::models
