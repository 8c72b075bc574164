// Gates against DeepSpeed's own (gates.json; README.md describes the fields).
#include <tessera/autograd.hpp>
#include <tessera/device.hpp>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "kernels/operators.hpp"
#include "moe/balance.hpp"
#include "moe/capacity.hpp"
#include "moe/host_copy.hpp"

using namespace tessera;
using nlohmann::json;

namespace {

json read_cases() {
  std::ifstream file(TESSERA_SOURCE_DIR "/tests/golden/gates.json");
  return json::parse(file).at("cases");
}

// [k][S] of the file as [S, k].
template <typename T>
std::vector<T> by_token(const json& rows) {
  std::vector<T> values;
  for (std::size_t s = 0; s < rows[0].size(); ++s) {
    for (const json& row : rows) values.push_back(static_cast<T>(row[s].get<double>()));
  }
  return values;
}

template <typename T>
std::vector<T> flat(const json& rows) {
  std::vector<T> values;
  for (const json& row : rows) {
    for (const json& value : row) values.push_back(static_cast<T>(value.get<double>()));
  }
  return values;
}

double apart(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

// A routed case, on the host.
struct GateResult {
  std::vector<std::int32_t> choice, position;
  std::vector<float> weight, grad_logits;
  std::vector<std::int64_t> counts;
  double aux_loss = 0.0, z_loss = 0.0;
};

GateResult run(const json& gate, std::int64_t capacity) {
  const auto device = make_cpu_device({.poison = true});
  const auto stream = device->make_stream("test");
  kernels::Operators& ops = kernels::operators(*device);
  const auto tokens = gate.at("tokens").get<std::int64_t>();
  const auto experts = gate.at("experts").get<std::int64_t>();
  const auto k = gate.at("k").get<std::int64_t>();
  const auto upload = [&](std::vector<float> values, Shape shape) {
    return moe::copy_to_device(*stream, *device, std::move(values), std::move(shape), DType::kF32);
  };
  const auto make = [&](Shape shape, DType dtype) { return Tensor(*device, shape, dtype); };

  const kernels::Routing routing{.probs = make({tokens, experts}, DType::kF32),
                                 .choice = make({tokens, k}, DType::kI32),
                                 .position = make({tokens, k}, DType::kI32),
                                 .weight = make({tokens, k}, DType::kF32),
                                 .counts = make({experts}, DType::kI64),
                                 .first_counts = make({experts}, DType::kI64),
                                 .prob_sums = make({experts}, DType::kF32),
                                 .z_sum = make({1}, DType::kF32),
                                 .lse = make({tokens}, DType::kF32)};
  kernels::RouteOptions options;
  options.top_k = static_cast<int>(k);
  options.capacity = capacity;
  options.probs_policy = gate.at("drop_policy") == "probs";
  ops.route(*stream, upload(flat<float>(gate.at("logits")), {tokens, experts}), Tensor(), options,
            routing);

  const auto sums = moe::read_to_host<float>(*stream, routing.prob_sums);
  const auto firsts = moe::read_to_host<std::int64_t>(*stream, routing.first_counts);
  const moe::Balance balance = moe::balance_loss(
      {{sums.begin(), sums.end()}, {firsts.begin(), firsts.end()}, static_cast<double>(tokens)},
      options.top_k);
  std::vector<float> prob_scale;
  for (const double slope : balance.slope) {
    prob_scale.push_back(static_cast<float>(gate.at("aux_cotangent").get<double>() * slope /
                                            static_cast<double>(tokens)));
  }
  const Tensor grad_logits = make({tokens, experts}, DType::kF32);
  ops.route_backward(*stream, routing, options,
                     upload(by_token<float>(gate.at("weight_cotangent")), {tokens, k}),
                     upload(prob_scale, {experts}), 0.0f, grad_logits, false);
  return {moe::read_to_host<std::int32_t>(*stream, routing.choice),
          moe::read_to_host<std::int32_t>(*stream, routing.position),
          moe::read_to_host<float>(*stream, routing.weight),
          moe::read_to_host<float>(*stream, grad_logits),
          moe::read_to_host<std::int64_t>(*stream, routing.counts),
          balance.loss,
          moe::read_to_host<float>(*stream, routing.z_sum)[0] / static_cast<double>(tokens)};
}

}  // namespace

TEST_CASE("Gates choose, drop, weigh and differentiate as DeepSpeed's") {
  const json cases = read_cases();
  REQUIRE(cases.size() >= 40);
  for (const json& gate : cases) {
    INFO(gate.at("name").get<std::string>());
    const bool drop = gate.at("drop_tokens").get<bool>();
    const auto capacity =
        moe::expert_capacity(gate.at("tokens").get<std::int64_t>(), gate.at("experts").get<int>(),
                             gate.at("k").get<int>(), gate.at("capacity_factor").get<double>(),
                             gate.at("min_capacity").get<std::int64_t>());
    if (drop) CHECK(capacity == gate.at("capacity").get<std::int64_t>());

    const GateResult result = run(gate, drop ? capacity : 0);
    CHECK(result.choice == by_token<std::int32_t>(gate.at("choices")));
    CHECK(result.counts == gate.at("exp_counts").get<std::vector<std::int64_t>>());
    const auto kept = by_token<std::int32_t>(gate.at("kept"));
    // The order within an expert is the same for k <= 2 only; there positions are compared too.
    const bool same_order = gate.at("k").get<int>() <= 2;
    const auto positions = by_token<std::int32_t>(gate.at("kept_positions"));
    std::vector<std::int32_t> got_kept, got_positions, want_positions;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      got_kept.push_back(result.position.at(i) >= 0 ? 1 : 0);
      want_positions.push_back(kept[i] != 0 ? positions[i] : -1);
    }
    CHECK(got_kept == kept);
    if (same_order) CHECK(result.position == want_positions);
    CHECK(apart(result.weight, by_token<float>(gate.at("weights"))) < 1e-6);
    CHECK(apart(result.grad_logits, flat<float>(gate.at("logits_gradient"))) < 2e-6);
    CHECK(result.aux_loss == Approx(gate.at("l_aux").get<double>()).epsilon(1e-6));
    CHECK(result.z_loss == Approx(gate.at("z_loss").get<double>()).epsilon(1e-6));
  }
}

TEST_CASE("The documented example of top-2 gating") {
  const json cases = read_cases();
  const GateResult result = run(cases.at(0), 3);
  CHECK(result.choice == std::vector<std::int32_t>{0, 1, 0, 1, 0, 1, 1, 2, 0, 2, 3, 2});
  CHECK(result.position == std::vector<std::int32_t>{0, 1, 1, 2, 2, -1, 0, 0, -1, 1, 0, 2});
  CHECK(result.counts == std::vector<std::int64_t>{4, 4, 3, 1});
  CHECK(result.aux_loss == Approx(1.5312021).epsilon(1e-6));
  CHECK(apart(result.weight, {.731059f, .268941f, .668188f, .331812f, 1, 0, .731059f, .268941f, 0,
                              1, .845535f, .154465f}) < 1e-6);

  const GateResult tight = run(cases.at(1), 2);
  CHECK(apart(tight.weight, {.731059f, .268941f, 1, 0, 0, 0, .731059f, .268941f, 0, 1, 1, 0}) <
        1e-6);
}
