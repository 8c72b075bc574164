#include <tessera/device.hpp>
#include <tessera/error.hpp>
#include <tessera/moe.hpp>

#include <cmath>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "unit/moe/layer_run.hpp"
#include "unit/moe/reference.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr double kTolerance = 2e-5;

std::unique_ptr<Device> poisoned_device(StreamMode mode = StreamMode::kInline) {
  return make_cpu_device({.stream_mode = mode, .poison = true});
}

std::vector<Share> only_rank(const MoeCase& moe) {
  std::vector<Share> shares;
  for (const auto& step : moe.steps) shares.push_back(step.at(0));
  return shares;
}

// Compares every output, gradient and report of one rank with the reference.
void check_against_reference(MoeCase moe, const LayerRun& options = {},
                             StreamMode mode = StreamMode::kInline) {
  const auto device = poisoned_device(mode);
  const RankOutcome outcome = run_layer(*device, moe, only_rank(moe), options);
  REQUIRE(outcome.reports.size() == moe.steps.size());
  for (std::size_t m = 0; m < moe.steps.size(); ++m) {
    Share& share = moe.steps[m][0];
    const ShareOutcome reference = reference_share(moe, share);
    CHECK(distance(outcome.y[m], reference.y) < kTolerance);
    CHECK(distance(outcome.grad_x[m], reference_gradient(moe, share.x)) < kTolerance);
    const MoeReport& report = outcome.reports[m];
    CHECK(report.expert_tokens == reference.counts);
    CHECK(report.tokens == moe.tokens_of(share));
    CHECK(report.dropped_routes == reference.dropped);
    const double aux = reference_balance(moe.options, reference.prob_sums, reference.first_counts,
                                         reference.tokens);
    CHECK(report.aux_loss == Approx(aux).epsilon(1e-6));
    CHECK(report.z_loss ==
          Approx(reference.tokens == 0 ? 0.0 : reference.z_sum / reference.tokens).epsilon(1e-6));
  }
  REQUIRE(outcome.gradients.size() == moe.weights.size());
  for (auto& [name, values] : moe.weights) {
    INFO(name);
    CHECK(distance(outcome.gradients.at(name), reference_gradient(moe, values)) < kTolerance);
  }
}

MoeCase small_case() {
  MoeCase moe;
  moe.options.num_experts = 4;
  moe.options.min_capacity = 0;
  moe.options.drop_tokens = false;
  moe.options.aux_loss_coef = 0.05;
  moe.options.z_loss_coef = 0.02;
  return moe;
}

}  // namespace

TEST_CASE("An MoE layer equals plain loops in FP64") {
  MoeCase moe = small_case();
  SECTION("without dropping") { fill_case(moe, 1, 1, 4); }
  SECTION("with dropping") {
    moe.options.drop_tokens = true;
    moe.options.capacity_factor = 0.75;
    fill_case(moe, 1, 1, 4);
    CHECK(reference_share(moe, moe.steps[0][0]).dropped > 0);
  }
  SECTION("over two micro batches") { fill_case(moe, 2, 1, 3); }
  SECTION("with one choice") {
    moe.options.top_k = 1;
    fill_case(moe, 1, 1, 4);
  }
  SECTION("with three choices") {
    moe.options.top_k = 3;
    fill_case(moe, 1, 1, 4);
  }
  SECTION("with more experts than tokens") {
    moe.options.num_experts = 8;
    moe.time = 1;
    fill_case(moe, 1, 1, 2);
  }
  SECTION("with padding") {
    moe.options.drop_tokens = true;
    fill_case(moe, 2, 1, 4);
    pad_last(moe.steps[0][0], 1);
    pad_last(moe.steps[1][0], 3);
  }
  SECTION("with nothing but padding in one micro batch") {
    fill_case(moe, 2, 1, 2);
    pad_last(moe.steps[1][0], 2);
  }
  check_against_reference(moe);
}

TEST_CASE("An MoE layer computes the same on a worker stream and when recomputed") {
  MoeCase moe = small_case();
  moe.options.drop_tokens = true;
  fill_case(moe, 2, 1, 4);
  check_against_reference(moe, {}, StreamMode::kWorker);
  LayerRun options;
  options.checkpointing = true;
  check_against_reference(moe, options);
  check_against_reference(moe, options, StreamMode::kWorker);
}

TEST_CASE("One token and min_capacity: nothing drops") {
  MoeCase moe = small_case();
  moe.options.drop_tokens = true;
  moe.options.min_capacity = 4;
  moe.time = 1;
  fill_case(moe, 1, 1, 1);
  CHECK(reference_share(moe, moe.steps[0][0]).dropped == 0);
  check_against_reference(moe);
}

TEST_CASE("Dropped routes are those beyond the capacity") {
  // 5 tokens, all to expert 0 first: the gate looks at feature 0 alone.
  MoeCase moe = small_case();
  moe.options.drop_tokens = true;
  moe.options.top_k = 1;
  moe.time = 5;
  fill_case(moe, 1, 1, 1);
  for (double& value : moe.weights["gate.weight"]) value = 0.0;
  moe.weights["gate.weight"][0] = 4.0;
  for (std::size_t s = 0; s < 5; ++s) moe.steps[0][0].x[s * 8] = 1.0;
  const auto dropped = [&](double factor, int min_capacity, bool drop) {
    moe.options.capacity_factor = factor;
    moe.options.min_capacity = min_capacity;
    moe.options.drop_tokens = drop;
    const auto device = poisoned_device();
    return run_layer(*device, moe, only_rank(moe)).reports.at(0).dropped_routes;
  };
  CHECK(dropped(1.0, 0, true) == 3);  // ceil(5/4) = 2 stay
  CHECK(dropped(1.0, 4, true) == 1);
  CHECK(dropped(0.01, 0, true) == 4);  // 1 stays
  CHECK(dropped(100.0, 0, true) == 0);
  CHECK(dropped(0.01, 0, false) == 0);
  CHECK(dropped(100.0, 4, false) == 0);
}

TEST_CASE("Evaluation has its own capacity") {
  MoeCase moe = small_case();
  moe.options.drop_tokens = true;
  moe.options.capacity_factor = 0.25;
  moe.options.eval_capacity_factor = 4.0;
  fill_case(moe, 1, 1, 4);
  const auto device = poisoned_device();
  LayerRun options;
  CHECK(run_layer(*device, moe, only_rank(moe), options).reports.at(0).dropped_routes > 0);
  options.training = false;
  CHECK(run_layer(*device, moe, only_rank(moe), options).reports.at(0).dropped_routes == 0);
}

TEST_CASE("The balance loss alone reaches the router with its coefficient") {
  MoeCase moe = small_case();
  moe.options.z_loss_coef = 0.0;
  moe.options.aux_loss_coef = 0.01;
  fill_case(moe, 1, 1, 5);
  std::vector<double>& cotangent = moe.steps[0][0].cotangent;
  std::fill(cotangent.begin(), cotangent.end(), 0.0);
  const auto gate_gradient = [&](double coefficient, std::size_t repeats) {
    MoeCase repeated = moe;
    repeated.options.aux_loss_coef = coefficient;
    repeated.steps.assign(repeats, moe.steps[0]);
    const auto device = poisoned_device();
    return run_layer(*device, repeated, only_rank(repeated)).gradients.at("gate.weight");
  };
  const auto once = gate_gradient(0.01, 1);
  CHECK(distance(once, std::vector<double>(once.size(), 0.0), 1e-4) > 1.0);
  CHECK(distance(once, reference_gradient(moe, moe.weights["gate.weight"]), 1e-9) < 1e-4);
  auto half = gate_gradient(0.02, 1);
  for (double& value : half) value /= 2;
  CHECK(distance(half, once, 1e-9) < 1e-6);
  CHECK(distance(gate_gradient(0.01, 4), once, 1e-9) < 1e-5);
}

TEST_CASE("Auxiliary losses do not touch the output") {
  MoeCase moe = small_case();
  fill_case(moe, 1, 1, 4);
  const auto device = poisoned_device();
  const auto with = run_layer(*device, moe, only_rank(moe)).y;
  moe.options.aux_loss_coef = 0.0;
  moe.options.z_loss_coef = 0.0;
  CHECK(run_layer(*device, moe, only_rank(moe)).y == with);
}

TEST_CASE("Noise on the second choice depends on the sequence, not on the batch") {
  MoeCase moe = small_case();
  fill_case(moe, 1, 1, 6);
  const auto device = poisoned_device();
  const auto plain = run_layer(*device, moe, only_rank(moe)).y.at(0);
  moe.options.second_choice_sampling = true;
  const auto together = run_layer(*device, moe, only_rank(moe)).y.at(0);
  CHECK(together != plain);

  MoeCase apart = moe;
  apart.steps = {{make_share(moe, 4, 2)}, {make_share(moe, 0, 4)}};
  const auto pieces = run_layer(*device, apart, only_rank(apart)).y;
  auto joined = pieces.at(1);
  joined.insert(joined.end(), pieces.at(0).begin(), pieces.at(0).end());
  CHECK(distance(joined, together) < 1e-6);

  LayerRun options;
  options.training = false;
  CHECK(run_layer(*device, moe, only_rank(moe), options).y.at(0) == plain);
  options.training = true;
  options.seed = 8;
  CHECK(run_layer(*device, moe, only_rank(moe), options).y.at(0) != together);
}

TEST_CASE("BF16 layers choose as FP32 ones: scores are FP32") {
  MoeCase moe = small_case();
  moe.options.drop_tokens = true;
  fill_case(moe, 1, 1, 4);
  // Scores of 10, 10.0039 and 10.0078 for token 0, which BF16 would make equal.
  std::vector<double>& gate = moe.weights["gate.weight"];
  std::vector<double>& x = moe.steps[0][0].x;
  std::fill(x.begin(), x.begin() + 8, 0.0);
  x[0] = 1.0;
  x[1] = 1.0 / 256;
  for (std::size_t e = 0; e < 4; ++e) {
    gate[e * 8] = e == 3 ? 0.0 : 10.0;
    gate[e * 8 + 1] = static_cast<double>(e % 3);
  }
  const auto device = poisoned_device();
  const RankOutcome wide = run_layer(*device, moe, only_rank(moe));
  LayerRun options;
  options.dtype = DType::kBF16;
  for (const bool checkpointing : {false, true}) {
    options.checkpointing = checkpointing;
    const RankOutcome narrow = run_layer(*device, moe, only_rank(moe), options);
    CHECK(narrow.reports.at(0).expert_tokens == wide.reports.at(0).expert_tokens);
    CHECK(narrow.reports.at(0).aux_loss == wide.reports.at(0).aux_loss);
    CHECK(distance(narrow.y.at(0), wide.y.at(0)) < 0.02);
    CHECK(distance(narrow.grad_x.at(0), wide.grad_x.at(0)) < 0.02);
    for (const auto& [name, values] : wide.gradients) {
      INFO(name);
      CHECK(distance(narrow.gradients.at(name), values) < 0.02);
    }
  }
}

TEST_CASE("An MoE layer refuses options that do not fit together") {
  const auto make = [](auto&& change) {
    MoeOptions options;
    change(options);
    return nn::MoE(options, 8, 12, 0.02f, 0.02f).options().num_experts;
  };
  CHECK(make([](MoeOptions&) {}) == 8);
  CHECK_THROWS_AS(make([](MoeOptions& o) { o.top_k = 9; }), Error);
  CHECK_THROWS_AS(make([](MoeOptions& o) { o.num_experts = 0; }), Error);
  CHECK_THROWS_AS(make([](MoeOptions& o) { o.aux_loss_scope = "both"; }), Error);
  CHECK_THROWS_AS(make([](MoeOptions& o) { o.drop_policy = "random"; }), Error);
  CHECK_THROWS_AS(make([](MoeOptions& o) { o.capacity_factor = 0.0; }), Error);
}

TEST_CASE("Parameters of an MoE layer have Mixtral's names and the experts' numbers") {
  MoeOptions options;
  options.num_experts = 2;
  nn::MoE layer(options, 8, 12, 0.02f, 0.02f);
  std::vector<std::string> names;
  for (const auto& parameter : layer.parameters()) {
    names.push_back(parameter->name + " " + parameter->shape.to_string() + " " +
                    std::to_string(parameter->expert));
  }
  CHECK(names ==
        std::vector<std::string>{"gate.weight [2, 8] -1", "experts.0.w1.weight [12, 8] 0",
                                 "experts.0.w3.weight [12, 8] 0", "experts.0.w2.weight [8, 12] 0",
                                 "experts.1.w1.weight [12, 8] 1", "experts.1.w3.weight [12, 8] 1",
                                 "experts.1.w2.weight [8, 12] 1"});
}
