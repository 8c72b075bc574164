// The same numbers in every layout: one tiny model and a fixed global batch over stages, ranks,
// accumulation and expert parallelism.
#include <algorithm>

#include <catch2/catch.hpp>

#include "support/tiny_run.hpp"

namespace tessera::testing {

namespace {

TinyRun dense(int ranks, int stage, int accumulation = 1) {
  TinyRun run;
  run.ranks = ranks;
  run.stage = stage;
  run.accumulation = accumulation;
  return run;
}

TinyRun experts(int ranks, int expert_ranks, int stage, int accumulation = 1) {
  TinyRun run = dense(ranks, stage, accumulation);
  run.moe = true;
  run.expert_ranks = expert_ranks;
  return run;
}

std::vector<double> norms(const TinyResult& result) {
  std::vector<double> values;
  for (const StepResult& step : result.steps) values.push_back(step.grad_norm);
  return values;
}

void same_bits_in_all_stages(TinyRun run) {
  run.stage = 0;
  const TinyResult reference = train_tiny(run);
  REQUIRE(reference.steps.size() == static_cast<std::size_t>(run.steps));
  REQUIRE(reference.steps.back().loss < reference.steps.front().loss);
  for (int stage = 1; stage <= 3; ++stage) {
    run.stage = stage;
    const TinyResult result = train_tiny(run);
    INFO("stage " << stage);
    CHECK(losses(result) == losses(reference));
    CHECK(norms(result) == norms(reference));
    CHECK(result.some_weight == reference.some_weight);
    CHECK(result.eval_loss == reference.eval_loss);
  }
}

/// Rounding differs between rank counts; where two experts are nearly tied that can flip a route,
/// and the runs part. Says so, to tell such a difference from a fault.
void warn_of_flipped_routes(const TinyResult& a, const TinyResult& b) {
  for (std::size_t step = 0; step < std::min(a.steps.size(), b.steps.size()); ++step) {
    for (std::size_t layer = 0; layer < a.steps[step].experts.size(); ++layer) {
      if (a.steps[step].experts[layer].expert_tokens !=
          b.steps[step].experts[layer].expert_tokens) {
        WARN("a near-tie flipped a route in step " << step + 1 << ", layer " << layer);
        return;
      }
    }
  }
}

void close_to(const TinyRun& run, const TinyResult& reference, double tolerance) {
  const TinyResult result = train_tiny(run);
  INFO("ranks " << run.ranks << " stage " << run.stage << " expert ranks " << run.expert_ranks
                << " accumulation " << run.accumulation);
  warn_of_flipped_routes(result, reference);
  CHECK(largest_relative_difference(losses(result), losses(reference)) <= tolerance);
  CHECK(largest_relative_difference(norms(result), norms(reference)) <= 10 * tolerance);
}

}  // namespace

TEST_CASE("Dense runs have the same bits in all ZeRO stages", "[parity]") {
  for (const int accumulation : {1, 4}) {
    INFO("accumulation " << accumulation);
    same_bits_in_all_stages(dense(2, 0, accumulation));
  }
  TinyRun adamw = dense(2, 0, 4);
  adamw.optimizer = "adamw";
  adamw.lr = 3e-3;
  same_bits_in_all_stages(adamw);
}

TEST_CASE("MoE runs have the same bits in all ZeRO stages", "[parity]") {
  same_bits_in_all_stages(experts(2, 1, 0));
  same_bits_in_all_stages(experts(2, 2, 0, 4));
  same_bits_in_all_stages(experts(4, 2, 0));
}

TEST_CASE("Dense runs agree over ranks and accumulation", "[parity]") {
  const TinyResult reference = train_tiny(dense(1, 0));
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int stage : {0, 3}) {
      for (const int accumulation : {1, 4}) {
        close_to(dense(ranks, stage, accumulation), reference, 2e-5);
      }
    }
  }
}

TEST_CASE("MoE runs agree over ranks and expert-parallel sizes", "[parity]") {
  const TinyResult reference = train_tiny(experts(1, 1, 0));
  for (const int stage : {0, 3}) {
    close_to(experts(2, 1, stage), reference, 2e-5);
    close_to(experts(2, 2, stage), reference, 2e-5);
    close_to(experts(4, 1, stage), reference, 2e-5);
    close_to(experts(4, 2, stage), reference, 2e-5);
    close_to(experts(4, 4, stage), reference, 2e-5);
  }
}

TEST_CASE("AdamW agrees over ranks, closely for ten steps", "[parity]") {
  TinyRun run = dense(1, 0);
  run.optimizer = "adamw";
  run.lr = 3e-3;
  const std::vector<double> reference = losses(train_tiny(run));
  const auto first = [](const std::vector<double>& values) {
    return std::vector<double>(values.begin(), values.begin() + std::min(10, kSteps));
  };
  run.stage = 3;
  for (const int ranks : {2, 3, 4}) {
    INFO("ranks " << ranks);
    run.ranks = ranks;
    const std::vector<double> series = losses(train_tiny(run));
    CHECK(largest_relative_difference(first(series), first(reference)) <= 2e-5);
    // Adam divides by the gradient's size, and so amplifies rounding.
    CHECK(largest_relative_difference(series, reference) <= 2e-4);
  }
}

TEST_CASE("Options that move work change no bits", "[parity]") {
  TinyRun run = experts(2, 2, 3, 4);
  run.steps = 6;
  const TinyResult reference = train_tiny(run);
  const auto same = [&](const TinyRun& changed, const char* what) {
    INFO(what);
    const TinyResult result = train_tiny(changed);
    CHECK(losses(result) == losses(reference));
    CHECK(norms(result) == norms(reference));
  };
  TinyRun changed = run;
  changed.prefetch_units = 0;
  same(changed, "no prefetch");
  changed.prefetch_units = 3;
  same(changed, "deep prefetch");
  changed = run;
  changed.checkpointing = "block";
  same(changed, "activation checkpointing");
  changed = run;
  changed.stream_mode = StreamMode::kWorker;
  same(changed, "worker streams");
  changed = run;
  changed.poison = true;
  same(changed, "poisoned memory");
}

TEST_CASE("Tied weights are trained once, in every layout", "[parity]") {
  TinyRun run = dense(1, 0);
  run.tied = true;
  const TinyResult reference = train_tiny(run);
  for (const int ranks : {2, 3, 4}) {
    for (int stage = 0; stage <= 3; ++stage) {
      run.ranks = ranks;
      run.stage = stage;
      close_to(run, reference, 2e-5);
    }
  }
}

TEST_CASE("Reducing once per step stays close where bits are not promised", "[parity]") {
  TinyRun run = dense(2, 1, 4);
  const TinyResult reference = train_tiny(run);
  run.deterministic = false;
  close_to(run, reference, 2e-5);
  run.stage = 0;
  close_to(run, reference, 2e-5);
}

TEST_CASE("Dropout depends neither on ranks nor on accumulation", "[parity]") {
  TinyRun run = dense(1, 0);
  run.dropout = 0.1;
  const TinyResult reference = train_tiny(run);
  for (const int ranks : {2, 3}) {
    run.ranks = ranks;
    run.stage = 3;
    run.accumulation = ranks == 2 ? 4 : 1;
    close_to(run, reference, 2e-5);
  }
}

}  // namespace tessera::testing
