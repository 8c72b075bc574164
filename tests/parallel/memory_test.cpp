// Bytes by purpose follow the formula of each ZeRO stage.
#include <catch2/catch.hpp>

#include "support/tiny_run.hpp"

namespace tessera::testing {

namespace {

std::int64_t bytes(const MemoryUsage& memory, MemoryTag tag) {
  return memory.current[static_cast<std::size_t>(tag)];
}

}  // namespace

TEST_CASE("Parameters, gradients and optimizer state take what the stage says", "[memory]") {
  TinyRun run;
  run.ranks = 4;
  run.steps = 2;
  run.optimizer = "adamw";
  run.lr = 1e-3;
  run.persistence_threshold = 0;
  const auto model = models::make(tiny_config(run).model);
  std::int64_t elements = 0;
  int parameters = 0;
  for (const auto& parameter : model->parameters()) {
    elements += parameter->shape.elements();
    ++parameters;
  }
  // Each parameter is padded to 256 elements, each unit's range once more.
  const std::int64_t padding = 256 * (parameters + 4 * 8);
  const auto within = [&](std::int64_t measured, std::int64_t copies, std::int64_t parts) {
    const std::int64_t least = 4 * copies * elements / parts;
    return measured >= least && measured <= least + 4 * copies * padding;
  };
  for (int stage = 0; stage <= 3; ++stage) {
    INFO("stage " << stage);
    run.stage = stage;
    const MemoryUsage memory = train_tiny(run).memory;
    CHECK(within(bytes(memory, MemoryTag::kParams), 1, stage == 3 ? 4 : 1));
    CHECK(within(bytes(memory, MemoryTag::kGrads), 1, stage >= 2 ? 4 : 1));
    CHECK(within(bytes(memory, MemoryTag::kOptimizer), 2, stage >= 1 ? 4 : 1));
    CHECK(bytes(memory, MemoryTag::kGathered) == 0);
  }
}

TEST_CASE("Gathered parameters stay below the layers in use and ahead", "[memory]") {
  for (const bool moe : {false, true}) {
    for (const int prefetch : {0, 1, 2}) {
      TinyRun run;
      run.steps = 3;
      run.accumulation = 4;
      run.moe = moe;
      run.prefetch_units = prefetch;
      const auto config = tiny_config(run);
      const auto model = models::make(config.model, config.moe);
      std::int64_t layer = 0;
      std::int64_t beside = 0;  // embedding, head and the root's norm
      for (const auto& parameter : model->parameters()) {
        const std::int64_t padded = (parameter->shape.elements() + 255) / 256 * 256;
        if (parameter->name.starts_with("model.layers.0.")) {
          layer += padded;
        } else if (!parameter->name.starts_with("model.layers.")) {
          beside = std::max(beside, padded);
        }
      }
      layer = std::max(layer, beside) + 256 * run.ranks * 2;
      const TinyResult result = train_tiny(run);
      const auto peak =
          result.steps.back().memory.peak[static_cast<std::size_t>(MemoryTag::kGathered)];
      INFO("moe " << moe << " prefetch " << prefetch << " layer " << 4 * layer);
      CHECK(peak > 0);
      CHECK(peak <= 4 * layer * (1 + prefetch));
    }
  }
}

}  // namespace tessera::testing
