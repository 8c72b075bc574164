#include <tessera/error.hpp>
#include <tessera/nn.hpp>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "unit/autograd/tape.hpp"

using namespace tessera;
using namespace tessera::testing;

namespace {

std::vector<std::string> names_of(Module& module) {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : module.named_parameters()) names.push_back(name);
  return names;
}

class Leaf final : public Module {
 public:
  explicit Leaf(std::int64_t size)
      : a(register_parameter("a", {size}, Init::normal(0.5f))),
        b(register_parameter("b", {2, size}, Init::ones(), false)) {}
  std::shared_ptr<Parameter> a, b;
};

class Tree final : public Module {
 public:
  Tree() {
    own = register_parameter("own", {3}, Init::zeros());
    left = register_module("left", std::make_shared<Leaf>(4));
    right = register_module("right", std::make_shared<Leaf>(5));
    register_tied("shared", left->a);
  }
  std::shared_ptr<Parameter> own;
  std::shared_ptr<Leaf> left, right;
};

}  // namespace

TEST_CASE("parameters have the paths of their modules; tied ones exist once") {
  Tree tree;
  CHECK(names_of(tree) ==
        std::vector<std::string>{"own", "shared", "left.a", "left.b", "right.a", "right.b"});
  std::vector<std::string> canonical;
  for (const auto& parameter : tree.parameters()) canonical.push_back(parameter->name);
  // The first place names it.
  CHECK(canonical == std::vector<std::string>{"own", "shared", "left.b", "right.a", "right.b"});
  CHECK(tree.left->a->name == "shared");
  std::vector<std::string> modules;
  for (const auto& [name, module] : tree.named_modules()) modules.push_back(name);
  CHECK(modules == std::vector<std::string>{"", "left", "right"});
}

TEST_CASE("a name is given once") {
  class Twice final : public Module {
   public:
    void parameter() { register_parameter("x", {1}, Init::zeros()); }
    void module() { register_module("m", std::make_shared<Leaf>(1)); }
  };
  Twice twice;
  twice.parameter();
  CHECK_THROWS_AS(twice.parameter(), Error);
  twice.module();
  CHECK_THROWS_AS(twice.module(), Error);
}

TEST_CASE("a module that is not bound says so") {
  Tree tree;
  CHECK_THROWS_AS(tree.context(), Error);
  CHECK_THROWS_AS(Variable(tree.own), Error);
}

TEST_CASE("materialised parameters are initialised, their gradients unwritten") {
  Rig rig;
  Tree tree;
  tree.materialize(rig.context, 9);
  CHECK(&tree.right->context() == &rig.context);
  CHECK(rig.read(tree.own->value) == std::vector<float>(3, 0.0f));
  CHECK(rig.read(tree.left->b->value) == std::vector<float>(8, 1.0f));
  for (const float value : rig.read(tree.left->a->value)) CHECK(std::abs(value) < 4.0f);
  CHECK(rig.read(tree.left->a->value) != std::vector<float>(4, 0.0f));
  for (const auto& parameter : tree.parameters()) CHECK_FALSE(parameter->grad_written);

  rig.context.backward(ops::reshape(tree.left->a, {2, 2}), 1.0f);
  CHECK(tree.left->a->grad_written);
  CHECK_FALSE(tree.right->a->grad_written);
  tree.zero_grad();
  CHECK_FALSE(tree.left->a->grad_written);
}

TEST_CASE("any piece of the initial values equals that part of the whole") {
  Parameter parameter;
  parameter.name = "model.layers.0.mlp.up_proj.weight";
  parameter.shape = {37, 31};
  parameter.init = Init::normal(0.02f);
  const std::int64_t elements = parameter.shape.elements();
  std::vector<float> whole(static_cast<std::size_t>(elements));
  initialize_range(parameter, 5, 0, elements, whole.data());
  for (const std::int64_t ranks : {1, 2, 3, 7, 64}) {
    const std::int64_t range = (elements + ranks - 1) / ranks;
    std::vector<float> pieces(whole.size(), -1.0f);
    for (std::int64_t begin = 0; begin < elements; begin += range) {
      const std::int64_t count = std::min(range, elements - begin);
      initialize_range(parameter, 5, begin, count, pieces.data() + begin);
    }
    CHECK(pieces == whole);
  }

  double mean = 0.0;
  double square = 0.0;
  for (const float value : whole) {
    mean += double{value} / static_cast<double>(elements);
    square += double{value} * double{value} / static_cast<double>(elements);
  }
  CHECK(std::abs(mean) < 4.0 * 0.02 / std::sqrt(static_cast<double>(elements)));
  CHECK(std::sqrt(square) == Approx(0.02).epsilon(0.08));

  std::vector<float> other(whole.size());
  initialize_range(parameter, 6, 0, elements, other.data());
  CHECK(other != whole);
  parameter.name = "model.layers.1.mlp.up_proj.weight";
  initialize_range(parameter, 5, 0, elements, other.data());
  CHECK(other != whole);
}

TEST_CASE("a layer marks the use of its unit, also when its forward throws") {
  struct Count final : UnitHooks {
    int open = 0;
    int uses = 0;
    void before_forward(int) override { ++open, ++uses; }
    void after_forward(int) override { --open; }
    void before_backward(int) override { ++open; }
    void after_backward(int) override { --open; }
  };
  class Throwing final : public Layer {
   public:
    Throwing() { register_parameter("p", {1}, Init::zeros()); }

   protected:
    Variable forward(const Variable&) override { throw Error(ErrorCode::kUsage, "on purpose"); }
  };
  Rig rig;
  Count count;
  rig.context.set_hooks(&count);
  const auto x = rig.parameter("x", {2, 4});

  nn::Linear linear(4, 3, true, 0.5f);
  linear.materialize(rig.context, 1);
  linear(x);
  CHECK(count.uses == 0);  // no unit yet
  linear.set_unit_number(2);
  rig.context.backward(linear(x), 1.0f);
  CHECK(count.uses == 1);
  CHECK(count.open == 0);

  Throwing throwing;
  throwing.materialize(rig.context, 1);
  throwing.set_unit_number(3);
  CHECK_THROWS_AS(throwing(x), Error);
}
