// Activation checkpointing: the same bits with less memory.
#include <functional>
#include <vector>

#include <catch2/catch.hpp>

#include "unit/autograd/tape.hpp"

using namespace tessera;
using namespace tessera::testing;

namespace {

using Block = std::function<Variable(const Variable&)>;
using Gradients = std::vector<std::vector<float>>;

/// How the two blocks of the test are run.
enum class Mode { kPlain, kEach, kNested };

struct Blocks {
  explicit Blocks(Rig& the_rig) : rig(the_rig) {
    for (const char* name : {"w0", "w1"}) weights.push_back(rig.parameter(name, {8, 8}));
    for (const char* name : {"n0", "n1"}) norms.push_back(rig.parameter(name, {8}, 1.0f));
    x = rig.parameter("x", {3, 4, 8});
    rig.set_sequences({7, 1, 30});
  }

  Block block(std::size_t i) {
    return [this, i](const Variable& input) {
      const Variable hidden = ops::linear(ops::rms_norm(input, norms[i], 1e-5f), weights[i]);
      const Variable dropped = ops::dropout(ops::gelu(hidden), dropout, i);
      return ops::add(input, ops::swiglu(dropped, input));
    };
  }

  Variable forward(const Variable& input, Mode mode) {
    switch (mode) {
      case Mode::kPlain: return block(1)(block(0)(input));
      case Mode::kEach:
        return rig.context.checkpoint(block(1), rig.context.checkpoint(block(0), input));
      case Mode::kNested:
        return rig.context.checkpoint(
            [this](const Variable& value) {
              return block(1)(rig.context.checkpoint(block(0), value));
            },
            input);
    }
    return {};
  }

  /// Output and gradients.
  Gradients run(Mode mode, bool input_wants_gradient) {
    const Variable input =
        input_wants_gradient ? ops::reshape(x, x->shape) : Variable(rig.context, x->value);
    std::vector<std::shared_ptr<Parameter>> all{weights[0], weights[1], norms[0], norms[1]};
    if (input_wants_gradient) all.push_back(x);
    for (const auto& parameter : all) parameter->grad_written = false;
    const Variable y = forward(input, mode);
    Gradients results{rig.read(y.tensor())};
    between();
    rig.backward(y);
    for (const auto& parameter : all) results.push_back(rig.read(parameter->grad));
    return results;
  }

  Rig& rig;
  std::vector<std::shared_ptr<Parameter>> weights;
  std::vector<std::shared_ptr<Parameter>> norms;
  std::shared_ptr<Parameter> x;
  double dropout = 0.0;
  std::function<void()> between = [] {};  ///< called between forward and backward
};

}  // namespace

TEST_CASE("checkpointed blocks give bitwise the same gradients") {
  Rig rig;
  Blocks blocks(rig);
  blocks.dropout = GENERATE(0.0, 0.4);
  const bool input_wants_gradient = GENERATE(true, false);
  const auto reference = blocks.run(Mode::kPlain, input_wants_gradient);
  CHECK(blocks.run(Mode::kEach, input_wants_gradient) == reference);
  CHECK(blocks.run(Mode::kNested, input_wants_gradient) == reference);
}

TEST_CASE("a block is computed again in the state of its forward pass") {
  Rig rig;
  Blocks blocks(rig);
  blocks.dropout = 0.4;
  const auto reference = blocks.run(Mode::kPlain, true);
  SECTION("the next micro batch is already there") {
    blocks.between = [&] { rig.set_sequences({100, 101, 102}); };
    CHECK(blocks.run(Mode::kEach, true) == reference);
    CHECK(*rig.context.sequence_index.data<std::int64_t>() == 100);
  }
  SECTION("an evaluation came between") {
    blocks.between = [&] {
      rig.context.set_training(false);
      rig.context.set_recording(false);
    };
    CHECK(blocks.run(Mode::kEach, true) == reference);
    CHECK_FALSE(rig.context.training());
    CHECK_FALSE(rig.context.recording());
  }
}

TEST_CASE("a block that gives back its input, or nothing that wants a gradient") {
  Rig rig;
  const auto p = rig.parameter("p", {4});
  const Variable same =
      rig.context.checkpoint([](const Variable& x) { return x; }, ops::reshape(p, {4}));
  rig.context.backward(ops::add(same, same), 1.0f);
  CHECK(rig.read(p->grad) == std::vector<float>(4, 2.0f));

  p->grad_written = false;
  const Variable constant(rig.context, p->value);
  const Variable other = rig.context.checkpoint(
      [&](const Variable&) { return ops::add(constant, constant); }, ops::reshape(p, {4}));
  rig.context.backward(other, 1.0f);
  CHECK_FALSE(p->grad_written);
}

TEST_CASE("checkpointing keeps fewer activations") {
  const auto peak = [](Mode mode) {
    Rig rig;
    const auto w = rig.parameter("w", {64, 64});
    const auto block = [&](const Variable& input) {
      Variable y = input;
      for (int i = 0; i < 8; ++i) y = ops::gelu(ops::linear(y, w));
      return y;
    };
    Variable y(rig.context, rig.parameter("x", {32, 64})->value);
    rig.device->reset_peak();
    for (int i = 0; i < 8; ++i)
      y = mode == Mode::kPlain ? block(y) : rig.context.checkpoint(block, y);
    rig.context.backward(y, 1.0f);
    return rig.device->memory_usage().peak[static_cast<std::size_t>(MemoryTag::kActivations)];
  };
  CHECK(peak(Mode::kEach) * 3 < peak(Mode::kPlain));
}
