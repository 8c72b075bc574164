// The tape: where gradients go, what they share, and what is refused.
#include "unit/autograd/tape.hpp"

#include <tessera/error.hpp>

#include <string>
#include <vector>

#include <catch2/catch.hpp>

using namespace tessera;
using namespace tessera::testing;

namespace {

constexpr double kTolerance = 2e-3;  // of central differences in FP32

/// y = x³, by the public way to make operators.
Variable cube(const Variable& x) {
  Context& context = x.context();
  const Tensor input = x.tensor();
  Tensor output(context.device(), input.shape(), DType::kF32);
  context.stream().enqueue([input, output] {
    for (std::int64_t i = 0; i < input.elements(); ++i) {
      const float value = input.data<float>()[i];
      output.data<float>()[i] = value * value * value;
    }
  });
  return context.record("cube", {x}, output, [input](BackwardScope& scope) {
    const Tensor grad = scope.grad_output();
    const GradTarget target = scope.target(0);
    scope.context().stream().enqueue([=] {
      for (std::int64_t i = 0; i < input.elements(); ++i) {
        const float value = input.data<float>()[i];
        const float change = 3.0f * value * value * grad.data<float>()[i];
        float& place = target.tensor.data<float>()[i];
        place = target.accumulate ? place + change : change;
      }
    });
  });
}

/// (a, b, c) = (2x, 3x, 5x); `seen` notes which outputs' gradients backward was given.
std::vector<Variable> three_multiples(const Variable& x, std::vector<bool>& seen) {
  Context& context = x.context();
  auto& table = kernels::operators(context.device());
  std::vector<Tensor> outputs;
  for (const float factor : {2.0f, 3.0f, 5.0f}) {
    Tensor output(context.device(), x.shape(), DType::kF32);
    table.copy(context.stream(), x.tensor(), output);
    table.scale(context.stream(), output, factor);
    outputs.push_back(output);
  }
  return context.record("three_multiples", {x}, outputs, [&table, &seen](BackwardScope& scope) {
    Stream& stream = scope.context().stream();
    GradTarget target = scope.target(0);
    const float factors[] = {2.0f, 3.0f, 5.0f};
    for (int i = 0; i < 3; ++i) {
      const Tensor grad = scope.grad_output(i);
      seen.push_back(grad.defined());
      if (!grad.defined()) continue;
      Tensor scaled(scope.context().device(), grad.shape(), DType::kF32);
      table.copy(stream, grad, scaled);
      table.scale(stream, scaled, factors[i]);
      if (target.accumulate) {
        table.add_to(stream, scaled, target.tensor);
      } else {
        table.copy(stream, scaled, target.tensor);
      }
      target.accumulate = true;
    }
  });
}

std::vector<float> filled(std::size_t count, float value) {
  return std::vector<float>(count, value);
}

}  // namespace

TEST_CASE("a value used by several operators gets the sum of their gradients") {
  Rig rig;
  const auto p = rig.parameter("p", {3, 4});
  const Variable x = ops::reshape(p, {2, 6});
  const Variable y = ops::add(ops::add(x, x), x);
  rig.context.backward(y, 1.0f);
  CHECK(rig.read(p->grad) == filled(12, 3.0f));

  // The same with parameters as direct operands.
  p->grad_written = false;
  rig.context.backward(ops::add(p, p), 1.5f);
  CHECK(rig.read(p->grad) == filled(12, 3.0f));
}

TEST_CASE("gradients that are passed on are not changed by their other owner") {
  Rig rig;
  const auto p = rig.parameter("p", {8});
  const auto q = rig.parameter("q", {8});
  const auto r = rig.parameter("r", {8});
  const Variable v = ops::reshape(p, {8});
  const Variable u = ops::reshape(q, {8});
  const Variable w = ops::reshape(r, {8});
  // In backward the sum's gradient is passed to v and u as one tensor; then cube adds to v's.
  const Variable late = cube(v);
  const Variable out = ops::add(ops::add(ops::add(v, u), w), late);
  rig.context.backward(out, 1.0f);
  CHECK(rig.read(q->grad) == filled(8, 1.0f));
  CHECK(rig.read(r->grad) == filled(8, 1.0f));
  const auto value = rig.read(p->value);
  const auto gradient = rig.read(p->grad);
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(gradient[i] == Approx(1.0f + 3.0f * value[i] * value[i]));
  }
}

TEST_CASE("gradients given to backward are left as they were") {
  Rig rig;
  const auto p = rig.parameter("p", {4});
  const Variable y = ops::reshape(p, {4});
  const Tensor ones = rig.upload(filled(4, 1.0f), {4});
  const Tensor twos = rig.upload(filled(4, 2.0f), {4});
  SECTION("the same output twice") {
    rig.context.backward(std::vector{y, y, y}, std::vector{ones, twos, ones});
    CHECK(rig.read(p->grad) == filled(4, 4.0f));
  }
  SECTION("an output that others use too") {
    const Variable z = cube(y);
    const Variable sum = ops::add(y, z);
    rig.context.backward(std::vector{sum, y}, std::vector{ones, twos});
    const auto value = rig.read(p->value);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(rig.read(p->grad)[i] == Approx(3.0f + 3.0f * value[i] * value[i]));
    }
  }
  CHECK(rig.read(ones) == filled(4, 1.0f));
  CHECK(rig.read(twos) == filled(4, 2.0f));
}

TEST_CASE("residual blocks agree with finite differences") {
  Rig rig;
  const auto x = rig.parameter("x", {2, 3, 8});
  const auto w = rig.parameter("w", {8, 8});
  const auto b = rig.parameter("b", {8});
  const auto norm = rig.parameter("norm", {8}, 1.0f);
  const auto forward = [&] {
    const Variable start = ops::reshape(x, {6, 8});
    const Variable hidden = ops::gelu(ops::linear(ops::rms_norm(start, norm, 1e-5f), w, b));
    const Variable middle = ops::add(start, hidden);
    return ops::add(middle, ops::swiglu(middle, ops::linear(middle, w)));
  };
  CHECK(rig.gradient_error({x, w, b, norm}, forward) < kTolerance);
}

TEST_CASE("an operator of one's own agrees with finite differences") {
  Rig rig;
  const auto x = rig.parameter("x", {5, 3});
  CHECK(rig.gradient_error({x}, [&] { return cube(x); }) < kTolerance);
  CHECK(rig.gradient_error({x}, [&] {
    const Variable y = ops::reshape(x, {15});
    return ops::add(cube(cube(y)), ops::add(cube(y), y));
  }) < kTolerance);
}

TEST_CASE("operators with several outputs, some of them unused") {
  Rig rig;
  const auto p = rig.parameter("p", {4});
  std::vector<bool> seen;
  SECTION("all used") {
    const auto y = three_multiples(p, seen);
    rig.context.backward(ops::add(ops::add(y[0], y[1]), y[2]), 1.0f);
    CHECK(rig.read(p->grad) == filled(4, 10.0f));
    CHECK(seen == std::vector<bool>{true, true, true});
  }
  SECTION("one used") {
    const auto y = three_multiples(p, seen);
    rig.context.backward(ops::add(y[1], y[1]), 1.0f);
    CHECK(rig.read(p->grad) == filled(4, 6.0f));
    CHECK(seen == std::vector<bool>{false, true, false});
  }
  SECTION("none used: backward is not called, the parameter is not written") {
    const auto y = three_multiples(p, seen);
    const auto q = rig.parameter("q", {4});
    rig.context.backward(cube(q), 1.0f);
    CHECK(seen.empty());
    CHECK_FALSE(p->grad_written);
    CHECK(q->grad_written);
  }
  SECTION("several of them are the outputs of backward") {
    const auto y = three_multiples(p, seen);
    const Tensor ones = rig.upload(filled(4, 1.0f), {4});
    rig.context.backward(std::vector{y[0], y[2]}, std::vector{ones, ones});
    CHECK(rig.read(p->grad) == filled(4, 7.0f));
    CHECK(seen == std::vector<bool>{true, false, true});
  }
}

TEST_CASE("parameter gradients add up until they are cleared") {
  Rig rig;
  const auto p = rig.parameter("p", {4});
  const auto run = [&] { rig.context.backward(ops::reshape(p, {2, 2}), 1.0f); };
  run();
  CHECK(rig.read(p->grad) == filled(4, 1.0f));
  run();
  CHECK(rig.read(p->grad) == filled(4, 2.0f));
  p->grad_written = false;
  run();
  CHECK(rig.read(p->grad) == filled(4, 1.0f));
}

TEST_CASE("frozen parameters get no gradient and change nobody else's") {
  Rig rig;
  const auto x = rig.parameter("x", {2, 4, 8});
  std::vector<std::shared_ptr<Parameter>> all{x};
  for (const char* name : {"q", "k", "v", "o", "gate", "up"}) {
    all.push_back(rig.parameter(name, {8, 8}));
  }
  all.push_back(rig.parameter("norm", {8}, 1.0f));
  all.push_back(rig.parameter("norm_bias", {8}));
  all.push_back(rig.parameter("bias", {8}));
  all.push_back(rig.parameter("positions", {5, 8}));
  const auto run = [&] {
    for (const auto& parameter : all) parameter->grad_written = false;
    const Variable start = ops::add_positions(x, all[10]);
    const Variable normed = ops::layer_norm(start, all[7], all[8], 1e-5f);
    const auto heads = [&](const Variable& value) { return ops::reshape(value, {2, 4, 2, 4}); };
    const Variable q = ops::rope(heads(ops::linear(normed, all[1], all[9])), 100.0);
    const Variable k = ops::rope(heads(ops::linear(normed, all[2])), 100.0);
    const Variable v = heads(ops::linear(normed, all[3]));
    const Variable attended = ops::linear(ops::reshape(ops::attention(q, k, v), {2, 4, 8}), all[4]);
    const Variable middle = ops::rms_norm(ops::add(start, attended), all[7], 1e-5f);
    const Variable out =
        ops::swiglu(ops::linear(middle, all[5]), ops::gelu(ops::linear(middle, all[6])));
    rig.backward(out);
    std::vector<std::vector<float>> gradients;
    for (const auto& parameter : all) {
      gradients.push_back(parameter->grad_written ? rig.read(parameter->grad)
                                                  : std::vector<float>{});
    }
    return gradients;
  };
  const auto reference = run();
  for (std::size_t frozen = 0; frozen < all.size(); ++frozen) {
    INFO(all[frozen]->name);
    all[frozen]->trainable = false;
    auto gradients = run();
    all[frozen]->trainable = true;
    CHECK(gradients[frozen].empty());
    gradients[frozen] = reference[frozen];
    CHECK(gradients == reference);
  }
  SECTION("only one trains: values that lead nowhere want no gradient") {
    for (std::size_t only = 0; only < all.size(); ++only) {
      INFO(all[only]->name);
      for (std::size_t i = 0; i < all.size(); ++i) all[i]->trainable = i == only;
      const auto gradients = run();
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (i == only) {
          CHECK(gradients[i] == reference[i]);
        } else {
          CHECK(gradients[i].empty());
        }
      }
    }
  }
}

TEST_CASE("nothing is recorded where nothing wants a gradient, or recording is off") {
  Rig rig;
  const auto p = rig.parameter("p", {4});
  const Variable constant(rig.context, p->value);
  CHECK_FALSE(constant.requires_grad());
  CHECK_FALSE(cube(constant).requires_grad());
  CHECK(cube(p).requires_grad());
  {
    const NoGradScope no_grad(rig.context);
    CHECK_FALSE(cube(p).requires_grad());
    const NoGradScope nested(rig.context);
  }
  CHECK(rig.context.recording());
  CHECK(cube(p).requires_grad());
  // Backward from a value without gradient does nothing.
  rig.context.backward(cube(constant), 1.0f);
  CHECK_FALSE(p->grad_written);
}

TEST_CASE("values of an earlier tape are refused instead of mistaken for newer ones") {
  Rig rig;
  const auto p = rig.parameter("p", {4});
  const Variable old = cube(p);
  SECTION("after backward") { rig.context.backward(old, 1.0f); }
  SECTION("after clear") { rig.context.clear(); }
  const Variable fresh = ops::reshape(p, {4});
  CHECK_THROWS_AS(cube(old), Error);
  CHECK_THROWS_AS(rig.context.backward(old, 1.0f), Error);
}

TEST_CASE("after an error in backward the context can be used again") {
  Rig rig;
  const auto p = rig.parameter("p", {4});
  const auto broken = [&](const Variable& x) {
    return rig.context.record("broken", {x}, x.tensor(),
                              [](BackwardScope&) { throw Error(ErrorCode::kData, "on purpose"); });
  };
  CHECK_THROWS_AS(rig.context.backward(broken(ops::reshape(p, {4})), 1.0f), Error);
  CHECK_THROWS_AS(
      rig.context.backward(rig.context.checkpoint([&](const Variable& x) { return broken(x); },
                                                  ops::reshape(p, {4})),
                           1.0f),
      Error);
  CHECK_FALSE(rig.context.recomputing());
  p->grad_written = false;
  rig.context.backward(ops::reshape(p, {4}), 1.0f);
  CHECK(rig.read(p->grad) == filled(4, 1.0f));
}

TEST_CASE("units are announced in forward, and in backward the other way round") {
  struct Log final : UnitHooks {
    std::vector<std::string> lines;
    void before_forward(int unit) override { lines.push_back("f" + std::to_string(unit)); }
    void after_forward(int unit) override { lines.push_back("/f" + std::to_string(unit)); }
    void before_backward(int unit) override { lines.push_back("b" + std::to_string(unit)); }
    void after_backward(int unit) override { lines.push_back("/b" + std::to_string(unit)); }
  };
  Rig rig;
  Log log;
  rig.context.set_hooks(&log);
  const auto p = rig.parameter("p", {4});
  const auto nested = [&](const Variable& x) {
    rig.context.begin_unit(1);
    const Variable y = cube(x);
    rig.context.end_unit(1);
    return y;
  };
  using Lines = std::vector<std::string>;
  SECTION("nested units") {
    rig.context.begin_unit(0);
    const Variable y = nested(ops::reshape(p, {4}));
    rig.context.end_unit(0);
    CHECK(log.lines == Lines{"f0", "f1", "/f1", "/f0"});
    log.lines.clear();
    rig.context.backward(y, 1.0f);
    CHECK(log.lines == Lines{"b0", "b1", "/b1", "/b0"});
  }
  SECTION("a unit inside a checkpointed block is used again in backward") {
    rig.context.begin_unit(0);
    const Variable y = rig.context.checkpoint(nested, ops::reshape(p, {4}));
    rig.context.end_unit(0);
    CHECK(log.lines == Lines{"f0", "f1", "/f1", "/f0"});
    log.lines.clear();
    rig.context.backward(y, 1.0f);
    CHECK(log.lines == Lines{"b0", "f1", "/f1", "b1", "/b1", "/b0"});
  }
  SECTION("without recording there is no backward") {
    const NoGradScope no_grad(rig.context);
    nested(ops::reshape(p, {4}));
    CHECK(log.lines == Lines{"f1", "/f1"});
  }
}

TEST_CASE("worker streams give the same bits as inline ones") {
  const auto run = [](StreamMode mode) {
    Rig rig(mode);
    const auto x = rig.parameter("x", {4, 6, 8});
    const auto w = rig.parameter("w", {8, 8});
    const auto norm = rig.parameter("norm", {8}, 1.0f);
    rig.set_sequences({3, 5, 8, 13});
    std::vector<std::vector<float>> results;
    for (int round = 0; round < 20; ++round) {
      const Variable start = ops::reshape(x, {4, 6, 8});
      const auto block = [&](const Variable& input) {
        const Variable hidden = ops::linear(ops::rms_norm(input, norm, 1e-5f), w);
        return ops::add(input, ops::dropout(ops::gelu(hidden), 0.3, 1));
      };
      const Variable y = block(rig.context.checkpoint(block, block(start)));
      rig.backward(y);
      results.push_back(rig.read(y.tensor()));
    }
    for (const auto& parameter : {x, w, norm}) results.push_back(rig.read(parameter->grad));
    return results;
  };
  CHECK(run(StreamMode::kInline) == run(StreamMode::kWorker));
}
