// Runs nn::MoE on several ranks of the local backend.
#pragma once

#include <tessera/world.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "unit/moe/layer_run.hpp"

namespace tessera::test {

/// Variations that must not change the result.
struct RankSettings {
  bool checkpointing = false;
  StreamMode mode = StreamMode::kInline;
  double loss_weight = 1.0;
  int repeats = 1;  ///< run the step this often; the last outcome counts
};

/// Rank r runs share r of every micro step; experts are shared out over groups of
/// `expert_parallel` consecutive ranks. New memory is full of NaN.
inline std::vector<RankOutcome> run_moe_ranks(const MoeCase& moe, int ranks, int expert_parallel,
                                              const RankSettings& settings = {}) {
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
  WorldOptions world_options;
  world_options.cpu.poison = true;
  world_options.cpu.stream_mode = settings.mode;
  world_options.comm.timeout_s = 60.0;
  run_ranks(ranks, world_options, [&](World& world) {
    const auto expert = world.comm().split(world.rank() / expert_parallel, world.rank(), "expert");
    const auto rank = static_cast<std::size_t>(world.rank());
    std::vector<Share> shares;
    for (const auto& step : moe.steps) shares.push_back(step.at(rank));
    LayerRun run;
    run.data = &world.comm();
    run.expert = expert.get();
    run.ranks = ranks;
    run.checkpointing = settings.checkpointing;
    run.loss_weight = settings.loss_weight;
    for (int i = 0; i < settings.repeats; ++i) {
      outcomes[rank] = run_layer(world.device(), moe, shares, run);
    }
  });
  return outcomes;
}

/// Each weight's gradient summed over the ranks that hold it.
inline std::map<std::string, std::vector<double>> summed_gradients(
    const std::vector<RankOutcome>& ranks) {
  std::map<std::string, std::vector<double>> sums;
  for (const RankOutcome& outcome : ranks) {
    for (const auto& [name, values] : outcome.gradients) {
      auto& sum = sums[name];
      sum.resize(values.size(), 0.0);
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
    }
  }
  return sums;
}

}  // namespace tessera::test
