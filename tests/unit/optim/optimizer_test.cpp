#include "optim/optimizer.hpp"

#include <tessera/device.hpp>
#include <tessera/error.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/env.hpp"
#include "kernels/operators.hpp"

using namespace tessera;
using nlohmann::json;

namespace {

Tensor upload(Device& device, const std::vector<double>& values) {
  Tensor tensor(device, Shape{static_cast<std::int64_t>(values.size())}, DType::kF32);
  std::ranges::transform(values, tensor.data<float>(),
                         [](double value) { return static_cast<float>(value); });
  return tensor;
}

std::vector<float> download(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.elements()};
}

/// Largest |a − b| / max(1, |b|).
double distance(const Tensor& tensor, const std::vector<double>& expected) {
  double largest = 0.0;
  const auto values = download(tensor);
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(double{values[i]} - expected[i]);
    largest = std::max(largest, difference / std::max(1.0, std::abs(expected[i])));
    if (std::isnan(difference)) return HUGE_VAL;
  }
  return largest;
}

OptimizerOptions options_of(const json& test) {
  OptimizerOptions options;
  options.type = test.at("kind");
  options.lr = test.at("lr");
  options.weight_decay = test.at("weight_decay");
  if (test.contains("betas")) {
    options.beta1 = test.at("betas").at(0);
    options.beta2 = test.at("betas").at(1);
    options.eps = test.at("eps");
  }
  if (test.contains("momentum")) options.momentum = test.at("momentum");
  return options;
}

/// "adam.m" → "m".
std::string golden_state(const std::string& name) { return name.substr(name.find('.') + 1); }

struct Trained {
  Tensor param;
  std::vector<Tensor> state;
};

/// Runs the given gradients; `after_step` is called after each.
template <typename F>
Trained run(Device& device, const OptimizerOptions& options, const json& tensor, double scale,
            bool weight_decay, const F& after_step) {
  const auto stream = device.make_stream("test");
  const Optimizer optimizer(options);
  const std::vector<double> start = tensor.at("start");
  Trained trained{upload(device, start), {}};
  for (std::size_t i = 0; i < optimizer.state_names().size(); ++i) {
    trained.state.push_back(upload(device, std::vector<double>(start.size())));
  }
  std::int64_t taken = 0;
  for (std::vector<double> gradient : tensor.at("gradients")) {
    for (double& value : gradient) value *= scale;
    optimizer.update(*stream, trained.param, upload(device, gradient), trained.state, options.lr,
                     ++taken, weight_decay, static_cast<float>(1.0 / scale));
    stream->synchronize();
    after_step(trained, static_cast<std::size_t>(taken - 1));
  }
  return trained;
}

}  // namespace

TEST_CASE("optimizers follow PyTorch step by step") {
  const auto device = make_cpu_device();
  const json golden = json::parse(
      Env::posix().read_file(std::string(TESSERA_SOURCE_DIR) + "/tests/golden/optimizers.json"));
  int compared = 0;
  for (const json& test : golden.at("cases")) {
    if (test.value("nesterov", false)) continue;  // not offered
    INFO(test.at("name").get<std::string>());
    const OptimizerOptions options = options_of(test);
    const auto names = Optimizer(options).state_names();
    for (const json& tensor : test.at("tensors")) {
      INFO(tensor.at("name").get<std::string>());
      double worst = 0.0;
      const Trained trained =
          run(*device, options, tensor, 1.0, true, [&](const Trained& now, std::size_t step) {
            worst = std::max(worst, distance(now.param, tensor.at("after").at(step)));
          });
      CHECK(worst < 1e-6);
      const json state = tensor.value("state", json::object());
      REQUIRE(names.size() == state.size());
      for (std::size_t i = 0; i < names.size(); ++i) {
        CHECK(distance(trained.state[i], state.at(golden_state(names[i]))) < 1e-6);
      }
      ++compared;
    }
  }
  CHECK(compared > 20);
}

TEST_CASE("a gradient scale is the same as scaled gradients") {
  const auto device = make_cpu_device();
  const json tensor = {{"start", {1.0, -2.0, 0.5}},
                       {"gradients", {{0.25, 0.5, -1.0}, {-0.125, 2.0, 0.0}}}};
  for (const char* type : {"adamw", "adam", "sgd"}) {
    OptimizerOptions options;
    options.type = type;
    options.weight_decay = 0.1;
    options.momentum = 0.9;
    const auto nothing = [](const Trained&, std::size_t) {};
    const auto plain = run(*device, options, tensor, 1.0, true, nothing);
    const auto scaled = run(*device, options, tensor, 1024.0, true, nothing);
    CHECK(download(plain.param) == download(scaled.param));
    for (std::size_t i = 0; i < plain.state.size(); ++i) {
      CHECK(download(plain.state[i]) == download(scaled.state[i]));
    }
    // A parameter without decay is one of an optimizer without decay.
    const auto exempt = run(*device, options, tensor, 1.0, false, nothing);
    options.weight_decay = 0.0;
    CHECK(download(exempt.param) ==
          download(run(*device, options, tensor, 1.0, true, nothing).param));
    CHECK(download(exempt.param) != download(plain.param));
  }
}

TEST_CASE("state names are those of checkpoints") {
  OptimizerOptions options;
  CHECK(Optimizer(options).state_names() == std::vector<std::string>{"adam.m", "adam.v"});
  options.type = "adam";
  CHECK(Optimizer(options).state_names() == std::vector<std::string>{"adam.m", "adam.v"});
  options.type = "sgd";
  CHECK(Optimizer(options).state_names().empty());
  options.momentum = 0.5;
  CHECK(Optimizer(options).state_names() == std::vector<std::string>{"sgd.momentum"});
  options.type = "lion";
  CHECK_THROWS_AS(Optimizer(options), Error);
}

TEST_CASE("the clipping coefficient") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kDenormal = std::numeric_limits<double>::denorm_min();
  CHECK(clip_coefficient(2.0, 1.0) == static_cast<float>(1.0 / (2.0 + 1e-6)));
  CHECK(clip_coefficient(0.5, 1.0) == 1.0f);
  // As PyTorch: just below the limit the small constant already clips.
  CHECK(clip_coefficient(1.0, 1.0) == static_cast<float>(1.0 / (1.0 + 1e-6)));
  CHECK(clip_coefficient(0.0, 1.0) == 1.0f);
  CHECK(clip_coefficient(kDenormal, 1.0) == 1.0f);
  CHECK(clip_coefficient(0.0, 1e-7) == static_cast<float>(1e-7 / 1e-6));
  CHECK(clip_coefficient(1e300, 1.0) == 0.0f);
  CHECK(clip_coefficient(kInfinity, 1.0) == 0.0f);
  CHECK(std::isnan(clip_coefficient(std::nan(""), 1.0)));
  for (const double off : {0.0, -1.0}) {
    CHECK(clip_coefficient(2.0, off) == 1.0f);
    CHECK(clip_coefficient(kInfinity, off) == 1.0f);
  }
}
