// Small training runs for tests that compare layouts: one tiny model, a fixed global batch, ranks
// as threads.
#pragma once

#include <tessera/tessera.hpp>

#include <string>
#include <vector>

namespace tessera::testing {

/// Under a sanitizer a step takes ten times as long, and shows all it has to show in a few.
#ifdef TESSERA_SANITIZED
inline constexpr int kSteps = 6;
#else
inline constexpr int kSteps = 30;
#endif

/// What varies between runs. The global batch is 48 sequences of 16 bytes whatever the ranks.
struct TinyRun {
  int ranks = 2;
  int stage = 3;
  int accumulation = 1;
  int steps = kSteps;
  bool moe = false;
  int expert_ranks = 1;
  std::string optimizer = "sgd";
  double lr = 0.1;
  double grad_clip = 0.5;
  bool tied = false;
  std::string checkpointing = "none";
  double dropout = 0.0;
  double aux_coef = 0.01;
  bool deterministic = true;
  std::int64_t persistence_threshold = 100;
  int prefetch_units = 1;
  StreamMode stream_mode = StreamMode::kInline;
  bool poison = false;
  std::string checkpoint_dir;  ///< "" = no checkpoints
  int first_run_steps = 0;     ///< > 0: save there and stop
  bool resume = false;
};

/// What rank 0 saw.
struct TinyResult {
  std::vector<StepResult> steps;
  std::vector<float> some_weight;  ///< one whole parameter at the end
  MemoryUsage memory;              ///< at the end, on rank 0
  double eval_loss = 0.0;
};

/// Path of a text file of about 60 kB, made once per process from a fixed seed.
std::string tiny_text();
/// A directory of this test's own, empty.
std::string fresh_directory(const std::string& name);

Config tiny_config(const TinyRun& run);
TinyResult train_tiny(const TinyRun& run);

std::vector<double> losses(const TinyResult& result);
/// The largest |a − b| / |b| over two series of equal length; infinite when lengths differ.
double largest_relative_difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace tessera::testing
