// The engine's inside: units, the order they are used in, and the numbers of the current step.
#pragma once

#include <tessera/engine.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/mesh.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedule.hpp"
#include "zero/layout.hpp"
#include "zero/unit.hpp"

namespace tessera {

/// Remembers the order in which units are used, and says which come next, to gather them ahead.
class UsageTrace {
 public:
  /// Notes a use; returns the units expected after it, nearest first, at most `ahead`.
  std::vector<int> note(int unit, int ahead);
  /// Ends a pass: the next one is expected to repeat it.
  void end_pass(bool complete);

 private:
  std::vector<int> known_;
  std::vector<int> current_;
  bool matches_ = true;
};

class Engine::Impl final : public UnitHooks {
 public:
  Impl(World& world, Model& model, const Config& config);

  // UnitHooks
  void before_forward(int unit) override;
  void after_forward(int unit) override;
  void before_backward(int unit) override;
  void after_backward(int unit) override;

  void begin_step(const TokenCounts& counts);
  void backward(const Loss& loss);
  StepResult apply();
  double evaluate(std::span<const MicroBatch> batches);

  World& world;
  Model& model;
  Config config;
  Context context;
  Mesh mesh;
  Optimizer optimizer;
  Schedule schedule;
  std::vector<UnitPlan> plans;
  std::vector<std::unique_ptr<ShardedUnit>> units;  // null where a unit has no parameters
  std::string fingerprint;

  std::int64_t step = 0;   // apply() calls
  std::int64_t taken = 0;  // steps that changed the parameters
  std::int64_t skipped = 0;

 private:
  void acquire(int unit);
  void release(int unit);
  void end_micro_step(bool complete);
  void finish_reductions(std::size_t leave);
  void reduce_late_units();
  std::vector<double> gather_rows(const std::vector<double>& row);
  std::vector<double> local_numbers();
  void read_numbers(const std::vector<double>& rows, std::size_t width, StepResult& result);

  UsageTrace trace_;
  std::vector<int> pending_uses_;  // per unit: backward passes still to come
  std::deque<int> reducing_;
  std::vector<Tensor> losses_;
  std::vector<MoeReport> reports_;  // this rank's, merged over the step's micro batches
  TokenCounts step_tokens_;
  double comm_wait_ms_ = 0.0;
  std::chrono::steady_clock::time_point step_begin_;
};

}  // namespace tessera
