// The checkpoints of one training run: what they hold, when they are due, where they lie.
#pragma once

#include <tessera/checkpoint.hpp>
#include <tessera/data.hpp>
#include <tessera/engine.hpp>
#include <tessera/export.hpp>
#include <tessera/options.hpp>
#include <tessera/world.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

/// Saves and restores an engine together with its data loader, as the `checkpoint:` section says.
/// All calls are collective. Engine, loader and world outlive it.
class TESSERA_API TrainingCheckpoints {
 public:
  TrainingCheckpoints(const Config& config, World& world, Engine& engine, DataLoader& data);

  /// Raises Error{kData} on all ranks when a save that is due one day could not be written: better
  /// now than then. Nothing where saving is off.
  void check_writable();

  /// Restores the newest valid checkpoint of the run, if there is one; returns its step.
  std::optional<std::int64_t> resume_latest();
  /// Restores the one at `path` (a checkpoint, or a directory of them); returns its step.
  std::int64_t resume(const std::string& path);

  /// Moves the directory's checkpoints of later steps than `step` into its folder "set-aside":
  /// after going back to `step` they belong to a run that was left, and the next resume_latest()
  /// must not take one of them for this run's newest. Returns how many there were.
  std::int64_t set_aside_after(std::int64_t step);

  /// True when the engine's step calls for a save: a multiple of save_interval, or the last step.
  bool due() const;
  /// Saves the engine's step, unless that is saved already. Raises Error{kData} on all ranks when
  /// it could not be written; older checkpoints are untouched then.
  void save();
  void save_if_due() {
    if (due()) save();
  }

  const std::string& directory() const { return store_.directory(); }

 private:
  std::vector<StateSource*> sources() { return {engine_, data_}; }
  VersionTriple versions() const;

  const Config* config_;
  World* world_;
  Engine* engine_;
  DataLoader* data_;
  Checkpointer store_;
  std::int64_t saved_step_ = -1;
};

}  // namespace tessera
