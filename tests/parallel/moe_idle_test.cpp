// Experts and ranks with nothing to do.
#include <tessera/error.hpp>
#include <tessera/world.hpp>

#include <vector>

#include <catch2/catch.hpp>

#include "unit/moe/layer_run.hpp"
#include "unit/moe/ranks.hpp"
#include "unit/moe/reference.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr double kTolerance = 2e-5;

MoeCase idle_case(int ranks, std::int64_t sequences, std::int64_t time) {
  MoeCase moe;
  moe.options.num_experts = 4;
  moe.options.drop_tokens = false;
  moe.options.aux_loss_scope = "global";
  moe.options.z_loss_coef = 0.01;
  moe.time = time;
  fill_case(moe, 1, ranks, sequences);
  return moe;
}

// Every token's first choice becomes `first`, its second `second`: they look at feature 0 alone.
void send_all_to(MoeCase& moe, std::size_t first, std::size_t second) {
  auto& gate = moe.weights["gate.weight"];
  const auto h = static_cast<std::size_t>(moe.hidden);
  for (std::size_t e = 0; e < 4; ++e) gate[e * h] = e == first ? 16.0 : e == second ? 8.0 : 0.0;
  for (auto& step : moe.steps) {
    for (Share& share : step) {
      for (std::size_t s = 0; s < share.x.size() / h; ++s) share.x[s * h] = 1.0;
    }
  }
}

void check_all(MoeCase moe, const std::vector<RankOutcome>& ranks) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    CHECK(distance(ranks[r].y.at(0), reference_share(moe, moe.steps[0][r]).y) < kTolerance);
  }
  const auto gradients = summed_gradients(ranks);
  REQUIRE(gradients.size() == moe.weights.size());
  for (auto& [name, values] : moe.weights) {
    INFO(name);
    CHECK(distance(gradients.at(name), reference_gradient(moe, values)) < kTolerance);
  }
}

}  // namespace

TEST_CASE("All tokens to the experts of one rank, twenty steps") {
  for (const int ranks : {2, 4}) {
    for (const StreamMode mode : {StreamMode::kInline, StreamMode::kWorker}) {
      MoeCase moe = idle_case(ranks, 2, 3);
      send_all_to(moe, 0, 1);
      RankSettings settings;
      settings.mode = mode;
      settings.repeats = 20;
      const auto outcomes = run_moe_ranks(moe, ranks, ranks, settings);
      CHECK(outcomes[0].reports.at(0).expert_tokens == std::vector<std::int64_t>{6, 6, 0, 0});
      check_all(moe, outcomes);
      const auto gradients = summed_gradients(outcomes);
      CHECK(gradients.at("experts.3.w2.weight") == std::vector<double>(8 * 12, 0.0));
    }
  }
}

TEST_CASE("All tokens to one expert, one choice") {
  MoeCase moe = idle_case(4, 2, 3);
  moe.options.top_k = 1;
  send_all_to(moe, 2, 0);
  const auto outcomes = run_moe_ranks(moe, 4, 4);
  CHECK(outcomes[3].reports.at(0).expert_tokens == std::vector<std::int64_t>{0, 0, 6, 0});
  check_all(moe, outcomes);
}

TEST_CASE("One token on every rank") {
  for (const int ranks : {2, 4}) {
    const MoeCase moe = idle_case(ranks, 1, 1);
    check_all(moe, run_moe_ranks(moe, ranks, ranks));
  }
}

TEST_CASE("Ranks with nothing but padding take part in every collective") {
  for (const char* scope : {"local", "global"}) {
    for (const bool checkpointing : {false, true}) {
      MoeCase moe = idle_case(4, 2, 3);
      moe.options.aux_loss_scope = scope;
      pad_last(moe.steps[0][1], 2);
      pad_last(moe.steps[0][3], 2);
      RankSettings settings;
      settings.checkpointing = checkpointing;
      settings.mode = StreamMode::kWorker;
      const auto outcomes = run_moe_ranks(moe, 4, 2, settings);
      CHECK(outcomes[1].reports.at(0).tokens == 0);
      check_all(moe, outcomes);
    }
  }
}

TEST_CASE("No rank has a token") {
  MoeCase moe = idle_case(2, 1, 3);
  MoeCase padded = moe;
  pad_last(padded.steps[0][0], 1);
  pad_last(padded.steps[0][1], 1);
  // The step's token count is never zero where there is a backward; here it comes from `moe`.
  padded.steps.push_back(moe.steps[0]);
  const auto outcomes = run_moe_ranks(padded, 2, 2);
  const std::vector<double> zeros(3 * 8, 0.0);
  CHECK(outcomes[0].y.at(0) == zeros);
  CHECK(outcomes[1].grad_x.at(0) == zeros);
  const auto gradients = summed_gradients(outcomes);
  const auto reference = summed_gradients(run_moe_ranks(moe, 2, 2));
  for (const auto& [name, values] : reference) {
    INFO(name);
    CHECK(distance(gradients.at(name), values) < 1e-6);
  }
}

TEST_CASE("Experts that the ranks cannot share out evenly are refused with the possible sizes") {
  MoeCase moe = idle_case(3, 1, 1);
  std::string message;
  ErrorCode code = ErrorCode::kInternal;
  try {
    run_moe_ranks(moe, 3, 3);
  } catch (const Error& error) {
    message = error.message();
    code = error.code();
  }
  CHECK(code == ErrorCode::kUsage);
  CHECK(message.find("4 experts") != std::string::npos);
  CHECK(message.find("3 expert-parallel") != std::string::npos);
  CHECK(message.find("1, 2, 4") != std::string::npos);
}
