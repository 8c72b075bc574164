// Experts shared out over ranks against plain loops over the joined batch.
#include <tessera/world.hpp>

#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "unit/moe/layer_run.hpp"
#include "unit/moe/ranks.hpp"
#include "unit/moe/reference.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr double kTolerance = 2e-5;

MoeCase parity_case(int steps, int ranks, std::int64_t sequences) {
  MoeCase moe;
  moe.options.num_experts = 4;
  moe.options.min_capacity = 0;
  moe.options.drop_tokens = false;
  moe.options.aux_loss_coef = 0.05;
  moe.options.z_loss_coef = 0.02;
  moe.options.aux_loss_scope = "global";
  fill_case(moe, steps, ranks, sequences);
  return moe;
}

void check_outputs(const MoeCase& moe, const std::vector<RankOutcome>& ranks) {
  for (std::size_t m = 0; m < moe.steps.size(); ++m) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      INFO("micro step " << m << ", rank " << r);
      const ShareOutcome reference = reference_share(moe, moe.steps[m][r]);
      CHECK(distance(ranks[r].y.at(m), reference.y) < kTolerance);
      CHECK(ranks[r].reports.at(m).expert_tokens == reference.counts);
      CHECK(ranks[r].reports.at(m).dropped_routes == reference.dropped);
    }
  }
}

void check_gradients(MoeCase moe, const std::vector<RankOutcome>& ranks) {
  const auto gradients = summed_gradients(ranks);
  REQUIRE(gradients.size() == moe.weights.size());
  for (auto& [name, values] : moe.weights) {
    INFO(name);
    CHECK(distance(gradients.at(name), reference_gradient(moe, values)) < kTolerance);
  }
  Share& share = moe.steps.at(0).back();
  CHECK(distance(ranks.back().grad_x.at(0), reference_gradient(moe, share.x)) < kTolerance);
}

}  // namespace

TEST_CASE("Outputs and all gradients are those of the joined batch for every expert group") {
  for (const int ranks : {1, 2, 4}) {
    for (const int expert_parallel : {1, 2, 4}) {
      if (ranks % expert_parallel != 0) continue;
      INFO("ranks " << ranks << ", expert-parallel " << expert_parallel);
      const MoeCase moe = parity_case(1, ranks, 8 / ranks);
      const auto outcomes = run_moe_ranks(moe, ranks, expert_parallel);
      check_outputs(moe, outcomes);
      check_gradients(moe, outcomes);
    }
  }
}

TEST_CASE("The same batch gives the same gradients on 1, 2 and 4 ranks") {
  const MoeCase joined = parity_case(1, 1, 8);
  const auto reference = summed_gradients(run_moe_ranks(joined, 1, 1));
  for (const int ranks : {2, 4}) {
    const MoeCase moe = parity_case(1, ranks, 8 / ranks);
    const auto gradients = summed_gradients(run_moe_ranks(moe, ranks, ranks));
    for (const auto& [name, values] : reference) {
      INFO(ranks << " ranks, " << name);
      CHECK(distance(gradients.at(name), values) < 2e-6);
    }
  }
}

TEST_CASE("Capacity and the local balance loss are each rank's own") {
  MoeCase moe = parity_case(2, 4, 2);
  moe.options.drop_tokens = true;
  moe.options.capacity_factor = 0.75;
  moe.options.aux_loss_scope = "local";
  const auto outcomes = run_moe_ranks(moe, 4, 2);
  check_outputs(moe, outcomes);
  check_gradients(moe, outcomes);
}

TEST_CASE("Padding is never counted, also not in the global balance loss") {
  // Rank 0 with 3 tokens, rank 1 with 5, the rest padding.
  for (const char* scope : {"local", "global"}) {
    INFO(scope);
    MoeCase moe = parity_case(1, 2, 8);
    moe.options.aux_loss_scope = scope;
    moe.time = 1;
    moe.steps.clear();
    moe.weights.clear();
    fill_case(moe, 1, 2, 8);
    pad_last(moe.steps[0][0], 5);
    pad_last(moe.steps[0][1], 3);
    const auto outcomes = run_moe_ranks(moe, 2, 2);
    check_outputs(moe, outcomes);
    check_gradients(moe, outcomes);
    CHECK(outcomes[0].reports.at(0).tokens == 3);
    CHECK(outcomes[1].reports.at(0).tokens == 5);
    if (moe.options.aux_loss_scope == "local") continue;
    // The joined batch has the 8 valid sequences.
    MoeCase joined = moe;
    Share& share = joined.steps[0][0];
    const Share second = moe.steps[0][1];
    share.sequence_index.insert(share.sequence_index.end(), second.sequence_index.begin(),
                                second.sequence_index.end());
    share.x.insert(share.x.end(), second.x.begin(), second.x.end());
    share.cotangent.insert(share.cotangent.end(), second.cotangent.begin(), second.cotangent.end());
    joined.steps[0].resize(1);
    const auto one = run_moe_ranks(joined, 1, 1);
    CHECK(outcomes[0].reports.at(0).aux_loss == Approx(one[0].reports.at(0).aux_loss));
    CHECK(outcomes[1].reports.at(0).aux_loss == outcomes[0].reports.at(0).aux_loss);
  }
}

TEST_CASE("A recomputed layer with experts on several ranks computes the same") {
  const MoeCase moe = parity_case(2, 4, 2);
  RankSettings settings;
  settings.checkpointing = true;
  settings.mode = StreamMode::kWorker;
  const auto outcomes = run_moe_ranks(moe, 4, 4, settings);
  check_outputs(moe, outcomes);
  check_gradients(moe, outcomes);
  for (const RankOutcome& outcome : outcomes) CHECK(outcome.reports.size() == 2);
}

TEST_CASE("The balance loss's strength depends on its coefficient alone") {
  // Every rank and every micro step has the same tokens, so all divisions describe one batch.
  const auto gate_gradient = [](double coefficient, int steps, int ranks, const char* scope) {
    MoeCase moe = parity_case(1, 1, 5);
    moe.options.aux_loss_coef = coefficient;
    moe.options.z_loss_coef = 0.0;
    moe.options.aux_loss_scope = scope;
    const Share share = moe.steps[0][0];
    moe.steps.assign(static_cast<std::size_t>(steps),
                     std::vector<Share>(static_cast<std::size_t>(ranks), share));
    RankSettings settings;
    settings.loss_weight = 0.0;
    return summed_gradients(run_moe_ranks(moe, ranks, ranks, settings)).at("gate.weight");
  };
  const auto reference = gate_gradient(0.01, 1, 1, "local");
  CHECK(distance(reference, std::vector<double>(reference.size(), 0.0), 1e-4) > 1.0);
  for (const char* scope : {"local", "global"}) {
    for (const int ranks : {1, 4}) {
      for (const int steps : {1, 4}) {
        INFO(scope << ", ranks " << ranks << ", micro steps " << steps);
        CHECK(distance(gate_gradient(0.01, steps, ranks, scope), reference, 1e-9) < 1e-5);
        auto half = gate_gradient(0.02, steps, ranks, scope);
        for (double& value : half) value /= 2;
        CHECK(distance(half, reference, 1e-9) < 1e-5);
      }
    }
  }
}
