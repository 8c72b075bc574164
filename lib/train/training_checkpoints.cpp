#include <tessera/training_checkpoints.hpp>
#include <tessera/version.hpp>

#include <fmt/format.h>

#include "base/env.hpp"
#include "base/philox.hpp"

namespace tessera {

namespace {

std::string directory_of(const Config& config) {
  return config.checkpoint.dir.empty() ? join_path(config.run.dir, "checkpoints")
                                       : config.checkpoint.dir;
}

}  // namespace

TrainingCheckpoints::TrainingCheckpoints(const Config& config, World& world, Engine& engine,
                                         DataLoader& data)
    : config_(&config),
      engine_(&engine),
      data_(&data),
      store_(config.checkpoint, directory_of(config), world, config.resolved_yaml) {}

VersionTriple TrainingCheckpoints::versions() const {
  const std::string code_and_config = std::string(version_string()) + "\n" + config_->resolved_yaml;
  return {engine_->fingerprint(), data_->fingerprint(),
          fmt::format("{:016x}", hash_name(code_and_config))};
}

void TrainingCheckpoints::check_writable() {
  if (config_->checkpoint.save_interval > 0) store_.check_writable();
}

std::optional<std::int64_t> TrainingCheckpoints::resume_latest() {
  const auto step = store_.load_latest(sources(), versions());
  if (step) saved_step_ = *step;
  return step;
}

std::int64_t TrainingCheckpoints::resume(const std::string& path) {
  return store_.load(path, sources(), versions());
}

bool TrainingCheckpoints::due() const {
  const std::int64_t interval = config_->checkpoint.save_interval;
  if (interval <= 0) return false;
  return engine_->step() % interval == 0 || engine_->step() >= config_->trainer.max_steps;
}

void TrainingCheckpoints::save() {
  if (saved_step_ == engine_->step()) return;
  store_.save(engine_->step(), sources(), versions());
  saved_step_ = engine_->step();
}

}  // namespace tessera
