// Straight runs against runs that were saved and resumed.
#include <catch2/catch.hpp>

#include "support/tiny_run.hpp"

namespace tessera::testing {

namespace {

/// Half of the steps, save, a new engine that resumes, the other half, on possibly other ranks.
TinyResult interrupted(TinyRun run, int later_ranks, int later_expert_ranks, int later_stage) {
  run.checkpoint_dir = fresh_directory("resume");
  run.first_run_steps = run.steps / 2;
  const TinyResult first = train_tiny(run);
  run.first_run_steps = 0;
  run.resume = true;
  run.ranks = later_ranks;
  run.expert_ranks = later_expert_ranks;
  run.stage = later_stage;
  TinyResult second = train_tiny(run);
  second.steps.insert(second.steps.begin(), first.steps.begin(), first.steps.end());
  return second;
}

TinyRun base(bool moe, int stage) {
  TinyRun run;
  run.moe = moe;
  run.expert_ranks = moe ? 2 : 1;
  run.stage = stage;
  run.steps = kSteps * 2 / 3;
  run.optimizer = "adamw";
  run.lr = 3e-3;
  run.accumulation = 4;
  run.dropout = 0.1;
  return run;
}

}  // namespace

TEST_CASE("A resumed run has the bits of a straight one", "[resume]") {
  for (const bool moe : {false, true}) {
    for (const int stage : {0, 1, 2, 3}) {
      INFO("moe " << moe << " stage " << stage);
      const TinyRun run = base(moe, stage);
      const TinyResult straight = train_tiny(run);
      const TinyResult resumed = interrupted(run, run.ranks, run.expert_ranks, stage);
      CHECK(losses(resumed) == losses(straight));
      CHECK(resumed.some_weight == straight.some_weight);
      std::vector<double> rates_a;
      std::vector<double> rates_b;
      for (const StepResult& s : straight.steps) rates_a.push_back(s.lr);
      for (const StepResult& s : resumed.steps) rates_b.push_back(s.lr);
      CHECK(rates_a == rates_b);
    }
  }
}

TEST_CASE("A checkpoint of four ranks is resumed on others", "[resume]") {
  for (const bool moe : {false, true}) {
    TinyRun run = base(moe, 3);
    run.ranks = 4;
    run.optimizer = "sgd";
    run.lr = 0.1;
    run.accumulation = 1;
    const TinyResult straight = train_tiny(run);
    for (const int ranks : {1, 2, 3}) {
      for (const int stage : {0, 3}) {
        INFO("moe " << moe << " ranks " << ranks << " stage " << stage);
        const TinyResult resumed = interrupted(run, ranks, moe && ranks == 2 ? 2 : 1, stage);
        CHECK(largest_relative_difference(losses(resumed), losses(straight)) <= 2e-5);
      }
    }
  }
}

}  // namespace tessera::testing
