// The engine: partitions a model's parameters, gradients and optimizer state over ranks (ZeRO
// stages 0 to 3), and runs optimizer steps with the same numbers in every stage.
#pragma once

#include <tessera/checkpoint.hpp>
#include <tessera/data.hpp>
#include <tessera/export.hpp>
#include <tessera/nn.hpp>
#include <tessera/options.hpp>
#include <tessera/world.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera {

/// What one optimizer step did; equal on all ranks.
struct StepResult {
  std::int64_t step = 0;    ///< number of this step, the first is 1
  std::int64_t tokens = 0;  ///< unmasked tokens of all ranks
  double loss = 0.0;        ///< mean loss over those tokens
  double aux_loss = 0.0;    ///< balance loss before its coefficient: sum over MoE layers of the
                            ///< token-weighted mean
  double z_loss = 0.0;      ///< likewise
  double lr = 0.0;          ///< the rate used; that of the next attempt when skipped
  double grad_norm = 0.0;   ///< global, of the mean gradient, before clipping
  double loss_scale = 1.0;
  bool skipped = false;  ///< nothing was changed: non-finite gradients, or no token
  std::int64_t skipped_total = 0;
  std::string precision = "fp32";  ///< what the step computed in
  double step_time_ms = 0.0;       ///< from begin_step() to the end of apply()
  double comm_wait_ms = 0.0;       ///< of that, waiting for collectives; the slowest rank's
  MemoryUsage memory;              ///< peaks of the step on the fullest rank
  std::vector<MoeReport> experts;  ///< per MoE layer, summed over ranks and micro steps
};

/// Trains one model. All calls are collective: every rank makes the same ones in the same order.
class TESSERA_API Engine : public StateSource {
 public:
  /// Cuts the model into units and gives each rank its ranges, with initial values that do not
  /// depend on the number of ranks. The model and the world outlive the engine. `config` must have
  /// been through resolve_for_ranks().
  Engine(World& world, Model& model, const Config& config);
  ~Engine() override;

  /// Starts an optimizer step: ranks agree on the number of unmasked and routed tokens of the whole
  /// step, all micro batches and ranks.
  void begin_step(const TokenCounts& counts);
  /// Backward of one micro batch. The loss counts as sum / (unmasked tokens of the step).
  void backward(const Loss& loss);
  /// Ends the step: reduce, agree on overflow, clip, update; or skip.
  StepResult apply();

  /// Mean loss over the unmasked targets of all ranks' batches (the same number of batches on every
  /// rank). No dropout, evaluation capacity. NaN when there is no unmasked target.
  double evaluate(std::span<const MicroBatch> batches);

  std::int64_t step() const;  ///< optimizer steps done, skipped ones included
  std::int64_t skipped_total() const;
  Context& context() const;
  /// Hash of architecture, names and shapes: the `model` part of a checkpoint's versions.
  std::string fingerprint() const;
  /// Elements of all parameters of the whole model, each once.
  std::int64_t parameter_elements() const;
  /// A whole parameter, gathered from its owners onto every rank, as host values.
  std::vector<float> full_parameter(const std::string& name);

  // StateSource
  std::vector<StateSlice> state_to_save() override;
  std::vector<StateSlice> state_to_load() override;
  void save_common(StateMap& state) override;
  void load_common(const StateMap& state) override;
  void state_loaded() override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
